"""Connects to a supervisor and adds what only the host can: a cgroup for each command, so that a kill ends
its whole tree. Limits are kept outside the sandbox.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

from sandboxer.backends.guest import Command, Exit, Process, ProcessInfo
from sandboxer.backends.launch import Counters, Door, LimitsOf
from sandboxer.backends.namespaces.box import BoxFolder
from sandboxer.backends.namespaces.cgroups import Cgroups
from sandboxer.backends.namespaces.pool import Pool
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.backends.supervisor.ends import LimitedGuest
from sandboxer.backends.supervisor.line import Gate
from sandboxer.kernel.errors import BackendLost, Conflict, NoCapacity
from sandboxer.kernel.values import new_id

# A disk with less than this left is what a failed write ran into.
FULL_WITHIN_BYTES = 256 * 1024
# Ended commands whose cgroup may lie about before the next command sweeps them.
UNSWEPT = 32


class SandboxLimits:
    """What the cgroups and the disk of one sandbox say of its limits."""

    def __init__(self, cgroups: Cgroups, pool: Pool, sandbox_id: str) -> None:
        self._cgroups = cgroups
        self._pool = pool
        self._id = sandbox_id

    def counters(self) -> Counters:
        return self._cgroups.counters(self._id)

    def is_disk_full(self) -> bool:
        disk = self._pool.usage(self._id)
        return bool(disk.limit_bytes) and disk.used_bytes > disk.limit_bytes - FULL_WITHIN_BYTES


class NamespacesGuest(LimitedGuest):
    def __init__(self, sandbox_id: str, line: SupervisorGuest, cgroups: Cgroups, limits: LimitsOf) -> None:
        super().__init__(line, limits(sandbox_id))
        self._id = sandbox_id
        self._cgroups = cgroups
        # Cgroup names of commands by process id. The kernel remembers them over a restart of the server.
        self._names = {split_name(name)[0]: name for name in cgroups.commands(sandbox_id)}

    async def run(self, command: Command, *, process_id: str | None = None) -> Process:
        process_id = process_id or new_id("prc")
        if process_id in self._names:
            raise Conflict(why=f"a process {process_id} exists already")
        name = cgroup_name(process_id, command.deadline)
        self._sweep()
        before = self._limits.counters()
        try:
            fd = self._cgroups.make_command(self._id, name)
        except FileNotFoundError:
            raise BackendLost(why="the sandbox is gone") from None
        except FileExistsError:
            raise Conflict(why=f"a process {process_id} exists already") from None
        except OSError as error:
            raise NoCapacity(resource="cgroups or descriptors", why=error.strerror) from None
        try:
            process = await self._line.run(
                command,
                process_id=process_id,
                cgroup_fd=fd,
                on_kill=lambda: self._kill(process_id),
                forget=not command.keep,
            )
        except BaseException:
            self._names[process_id] = name  # swept once it is empty
            self._cgroups.kill_command(self._id, name)
            raise
        finally:
            os.close(fd)
        self._names[process_id] = name
        return self._begun(process, before, is_kept=command.keep)

    async def _attached(self, process_id: str) -> Process:
        return await self._line.attach(process_id, on_kill=lambda: self._kill(process_id))

    async def processes(self) -> Sequence[ProcessInfo]:
        deadlines = dict(split_name(name) for name in self._cgroups.commands(self._id))
        return [replace(info, deadline=deadlines.get(info.process_id)) for info in await super().processes()]

    def ended(self, process_id: str, exit: Exit, before: Counters) -> Exit:
        """Removes the cgroup too, once it is empty."""
        name = self._names.get(process_id)
        if name is not None and self._cgroups.remove_command(self._id, name):
            del self._names[process_id]
        return super().ended(process_id, exit, before)

    async def _kill(self, process_id: str) -> None:
        if (name := self._names.get(process_id)) is not None:
            self._cgroups.kill_command(self._id, name)

    def _sweep(self) -> None:
        if len(self._names) < UNSWEPT:
            return
        for process_id, name in list(self._names.items()):
            if self._cgroups.remove_command(self._id, name):
                del self._names[process_id]


def cgroup_name(process_id: str, deadline: float | None) -> str:
    """Names a command's cgroup. The name holds the deadline, where a restarted server finds it."""
    return process_id if deadline is None else f"{process_id}.{int(deadline * 1000)}"


def split_name(name: str) -> tuple[str, float | None]:
    process_id, _, milliseconds = name.partition(".")
    return process_id, int(milliseconds) / 1000 if milliseconds.isdigit() else None


class OwnReach:
    """Reaches sandboxes by the path of their supervisor's socket, and pauses what is in their cgroup."""

    answers_frozen = True

    def __init__(self, boxes: BoxFolder, cgroups: Cgroups, limits: LimitsOf, *, streams: int) -> None:
        self._boxes = boxes
        self._cgroups = cgroups
        self._limits = limits
        self._streams = streams

    def door(self, sandbox_id: str) -> Door:
        return self._boxes.dial_path(sandbox_id)

    def guest(self, sandbox_id: str) -> NamespacesGuest:
        line = SupervisorGuest(self.door(sandbox_id), gate=Gate(self._streams))
        return NamespacesGuest(sandbox_id, line, self._cgroups, self._limits)

    def set_frozen(self, sandbox_id: str, frozen: bool, timeout_s: float) -> bool:
        return self._cgroups.set_frozen(sandbox_id, frozen, timeout_s)

    def is_frozen(self, sandbox_id: str) -> bool:
        return self._cgroups.is_frozen(sandbox_id)


async def answers(line: SupervisorGuest, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await line.ping()
    except (BackendLost, TimeoutError):
        return False
    return True
