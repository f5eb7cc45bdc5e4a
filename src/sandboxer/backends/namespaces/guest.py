"""Connects to a supervisor and adds what only the host can: a cgroup for each command, so that a kill ends
its whole tree, and the reason when a limit ended it. Limits are kept outside the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sandboxer.backends.guest import (
    Command,
    Connection,
    EndReason,
    Exit,
    Files,
    Output,
    PassedOnProcess,
    Process,
    ProcessInfo,
    Relay,
)
from sandboxer.backends.launch import Door
from sandboxer.backends.namespaces.box import BoxFolder
from sandboxer.backends.namespaces.cgroups import Cgroups, Counters
from sandboxer.backends.namespaces.pool import Pool
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.backends.supervisor.line import Gate
from sandboxer.backends.supervisor.process import SupervisorProcess
from sandboxer.kernel.errors import BackendLost, Conflict, NoCapacity
from sandboxer.kernel.values import new_id

# A disk with less than this left is what a failed write ran into.
FULL_WITHIN_BYTES = 256 * 1024
# Ended commands whose cgroup may lie about before the next command sweeps them.
UNSWEPT = 32
REMEMBERED = 256
T = TypeVar("T")


def _remember(known: dict[str, T], process_id: str, what: T) -> None:
    """Keeps it, and lets go of what was kept longest."""
    known[process_id] = what
    while len(known) > REMEMBERED:
        known.pop(next(iter(known)))


class NamespacesGuest:
    def __init__(self, sandbox_id: str, line: SupervisorGuest, cgroups: Cgroups, pool: Pool) -> None:
        self._id = sandbox_id
        self._line = line
        self._cgroups = cgroups
        self._pool = pool
        # Cgroup names of commands by process id. The kernel remembers them over a restart of the server.
        self._names = {split_name(name)[0]: name for name in cgroups.commands(sandbox_id)}
        self._reasons: dict[str, EndReason] = {}
        # What was counted when a process in the background began.
        self._started: dict[str, Counters] = {}

    @property
    def files(self) -> Files:
        return self._line.files

    async def run(self, command: Command, *, process_id: str | None = None) -> Process:
        process_id = process_id or new_id("prc")
        if process_id in self._names:
            raise Conflict(why=f"a process {process_id} exists already")
        name = cgroup_name(process_id, command.deadline)
        self._sweep()
        before = self._cgroups.counters(self._id)
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
        if command.keep:
            _remember(self._started, process_id, before)
        return WalledProcess(process, self, before)

    async def attach(self, process_id: str) -> Process:
        before = self._cgroups.counters(self._id)
        process = await self._line.attach(process_id, on_kill=lambda: self._kill(process_id))
        return WalledProcess(process, self, before)

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        await self._line.feed(process_id, data, close=close, offset=offset)

    async def processes(self) -> Sequence[ProcessInfo]:
        deadlines = dict(split_name(name) for name in self._cgroups.commands(self._id))
        return [
            replace(
                info,
                deadline=deadlines.get(info.process_id),
                exit=info.exit and self._with_reason(info.process_id, info.exit),
            )
            for info in await self._line.processes()
        ]

    async def forget(self, process_id: str) -> None:
        await self._line.forget(process_id)
        self._reasons.pop(process_id, None)
        self._started.pop(process_id, None)

    async def connect(self, port: int) -> Connection:
        return await self._line.connect(port)

    async def connect_socket(self, path: str) -> Connection:
        return await self._line.connect_socket(path)

    async def listen(self, port: int) -> Relay:
        return await self._line.listen(port)

    async def unlisten(self, port: int) -> None:
        await self._line.unlisten(port)

    async def listen_inside(self) -> Relay:
        return await self._line.listen_inside()

    async def unlisten_inside(self) -> None:
        await self._line.unlisten_inside()

    async def describe(self, files: Mapping[str, str]) -> None:
        await self._line.describe(files)

    async def ping(self) -> None:
        await self._line.ping()

    def ended(self, process_id: str, exit: Exit, before: Counters) -> Exit:
        """Returns `exit` with the reason that only the host knows, and removes the cgroup once it is
        empty.
        """
        name = self._names.get(process_id)
        if name is not None and self._cgroups.remove_command(self._id, name):
            del self._names[process_id]
        if self._reasons.get(process_id) is None and (reason := self._reason(exit, before)) is not None:
            _remember(self._reasons, process_id, reason)
        return self._with_reason(process_id, exit)

    def _reason(self, exit: Exit, before: Counters) -> EndReason | None:
        if exit.code == 0:
            return None
        now = self._cgroups.counters(self._id)
        if now.oom_kills > before.oom_kills:
            return EndReason.OOM_KILLED
        if now.object_kills > before.object_kills and exit.signal:
            return EndReason.KERNEL_OBJECTS_EXHAUSTED
        if now.pids_refused > before.pids_refused:
            return EndReason.PIDS_EXHAUSTED
        disk = self._pool.usage(self._id)
        if disk.limit_bytes and disk.used_bytes > disk.limit_bytes - FULL_WITHIN_BYTES:
            return EndReason.DISK_FULL
        return None

    def _with_reason(self, process_id: str, exit: Exit) -> Exit:
        reason = self._reasons.get(process_id) or self._unseen_reason(process_id, exit)
        return exit if reason is None else replace(exit, reason=reason)

    def _unseen_reason(self, process_id: str, exit: Exit) -> EndReason | None:
        """Returns why a process was killed that ended before anybody waited for it. Much can have happened
        since it began, so no other end is explained by it.
        """
        before = self._started.get(process_id)
        if before is None or (exit.signal != signal.SIGKILL and exit.code != 128 + signal.SIGKILL):
            return None
        if self._cgroups.counters(self._id).oom_kills == before.oom_kills:
            return None
        _remember(self._reasons, process_id, EndReason.OOM_KILLED)
        return EndReason.OOM_KILLED

    async def _kill(self, process_id: str) -> None:
        if (name := self._names.get(process_id)) is not None:
            self._reasons.setdefault(process_id, EndReason.KILLED)
            self._cgroups.kill_command(self._id, name)

    def _sweep(self) -> None:
        if len(self._names) < UNSWEPT:
            return
        for process_id, name in list(self._names.items()):
            if self._cgroups.remove_command(self._id, name):
                del self._names[process_id]


class WalledProcess(PassedOnProcess):
    """A process of the supervisor's, whose end is reported with the host's reason."""

    def __init__(self, process: SupervisorProcess, guest: NamespacesGuest, before: Counters) -> None:
        super().__init__(process)
        self._guest = guest
        self._before = before

    async def output(self) -> AsyncIterator[Output | Exit]:
        async for item in self._inner.output():
            if isinstance(item, Exit):
                yield self._guest.ended(self.process_id, item, self._before)
            else:
                yield item


def cgroup_name(process_id: str, deadline: float | None) -> str:
    """Names a command's cgroup. The name holds the deadline, where a restarted server finds it."""
    return process_id if deadline is None else f"{process_id}.{int(deadline * 1000)}"


def split_name(name: str) -> tuple[str, float | None]:
    process_id, _, milliseconds = name.partition(".")
    return process_id, int(milliseconds) / 1000 if milliseconds.isdigit() else None


class OwnReach:
    """Reaches sandboxes by the path of their supervisor's socket, and pauses what is in their cgroup."""

    answers_frozen = True

    def __init__(self, boxes: BoxFolder, cgroups: Cgroups, pool: Pool, *, streams: int) -> None:
        self._boxes = boxes
        self._cgroups = cgroups
        self._pool = pool
        self._streams = streams

    def door(self, sandbox_id: str) -> Door:
        return self._boxes.dial_path(sandbox_id)

    def guest(self, sandbox_id: str) -> NamespacesGuest:
        line = SupervisorGuest(self.door(sandbox_id), gate=Gate(self._streams))
        return NamespacesGuest(sandbox_id, line, self._cgroups, self._pool)

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
