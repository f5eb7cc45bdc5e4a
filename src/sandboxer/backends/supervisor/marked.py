"""A guest where the host sees no process of a sandbox: what the host would remember of a command, its
supervisor keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandboxer.backends.guest import Command, ProcessInfo
from sandboxer.backends.supervisor.client import OnKill, SupervisorGuest
from sandboxer.backends.supervisor.process import SupervisorProcess

# Divides a command's deadline from its tag, in what the supervisor keeps of it.
_MARK = "\x1f"


class MarkedGuest(SupervisorGuest):
    """A supervisor without a cgroup for each command: what a command started is killed by its group."""

    async def run(
        self,
        command: Command,
        *,
        process_id: str | None = None,
        cgroup_fd: int | None = None,
        on_kill: OnKill | None = None,
        forget: bool = False,
    ) -> SupervisorProcess:
        return await super().run(
            replace(command, tag=marked(command)),
            process_id=process_id,
            on_kill=on_kill,
            forget=forget,
        )

    async def processes(self) -> Sequence[ProcessInfo]:
        return [unmarked(info) for info in await super().processes()]


def marked(command: Command) -> str:
    """Keeps a deadline with the command, where a restarted server finds it."""
    if command.deadline is None:
        return command.tag
    return f"{int(command.deadline * 1000)}{_MARK}{command.tag}"


def unmarked(info: ProcessInfo) -> ProcessInfo:
    before, mark, tag = info.tag.partition(_MARK)
    if not mark or not before.isdigit():
        return info
    return replace(info, tag=tag, deadline=int(before) / 1000)
