"""A guest that says why a process ended, where only the host knows: a limit of the sandbox, or a kill.

Every backend whose sandboxes have the limits of a host derives its guest from `LimitedGuest`.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sandboxer.backends.guest import (
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
from sandboxer.backends.launch import Counters, Limits
from sandboxer.backends.supervisor.client import SupervisorGuest

REMEMBERED = 256
T = TypeVar("T")


def remember(known: dict[str, T], process_id: str, what: T) -> None:
    """Keeps it, and lets go of what was kept longest."""
    known[process_id] = what
    while len(known) > REMEMBERED:
        known.pop(next(iter(known)))


class LimitedGuest:
    def __init__(self, line: SupervisorGuest, limits: Limits) -> None:
        self._line = line
        self._limits = limits
        self._reasons: dict[str, EndReason] = {}
        # What was counted when a process in the background began.
        self._started: dict[str, Counters] = {}

    @property
    def files(self) -> Files:
        return self._line.files

    async def attach(self, process_id: str) -> Process:
        before = self._limits.counters()
        return LimitedProcess(await self._attached(process_id), self, before)

    async def _attached(self, process_id: str) -> Process:
        return await self._line.attach(process_id)

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        await self._line.feed(process_id, data, close=close, offset=offset)

    async def processes(self) -> Sequence[ProcessInfo]:
        return [
            replace(info, exit=info.exit and self._with_reason(info.process_id, info.exit))
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

    def killed(self, process_id: str) -> None:
        """Notes that it is about to be killed because somebody asked for it."""
        self._reasons.setdefault(process_id, EndReason.KILLED)

    def ended(self, process_id: str, exit: Exit, before: Counters) -> Exit:
        """Returns `exit` with the reason that only the host knows."""
        if self._reasons.get(process_id) is None and (reason := self._reason(exit, before)) is not None:
            remember(self._reasons, process_id, reason)
        return self._with_reason(process_id, exit)

    def _begun(self, process: Process, before: Counters, *, is_kept: bool) -> Process:
        if is_kept:
            remember(self._started, process.process_id, before)
        return LimitedProcess(process, self, before)

    def _reason(self, exit: Exit, before: Counters) -> EndReason | None:
        if exit.code == 0:
            return None
        now = self._limits.counters()
        if now.oom_kills > before.oom_kills:
            return EndReason.OOM_KILLED
        if now.object_kills > before.object_kills and exit.signal:
            return EndReason.KERNEL_OBJECTS_EXHAUSTED
        if now.pids_refused > before.pids_refused:
            return EndReason.PIDS_EXHAUSTED
        return EndReason.DISK_FULL if self._limits.is_disk_full() else None

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
        if self._limits.counters().oom_kills == before.oom_kills:
            return None
        remember(self._reasons, process_id, EndReason.OOM_KILLED)
        return EndReason.OOM_KILLED


class LimitedProcess(PassedOnProcess):
    """A process of the supervisor's, whose end is reported with the host's reason."""

    def __init__(self, process: Process, guest: LimitedGuest, before: Counters) -> None:
        super().__init__(process)
        self._guest = guest
        self._before = before

    async def kill(self) -> None:
        self._guest.killed(self.process_id)
        await super().kill()

    async def output(self) -> AsyncIterator[Output | Exit]:
        async for item in self._inner.output():
            if isinstance(item, Exit):
                yield self._guest.ended(self.process_id, item, self._before)
            else:
                yield item
