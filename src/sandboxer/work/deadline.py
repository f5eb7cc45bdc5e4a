"""A command's time limit: when it is over, everything the command started is killed, and its end awaited."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from sandboxer.backends.guest import Process
from sandboxer.kernel.errors import BackendLost, SandboxerError

log = logging.getLogger(__name__)
# Killing a tree takes milliseconds; a sandbox that needs longer than this to say so is lost.
END_AFTER_KILL_S = 10.0


class Deadline:
    """`async with Deadline(process, timeout_s)`: kills when the time is over; `passed` says so afterwards.

    It never cancels the reader inside, which goes on to read the last output and the exit. A timer, not a
    task, so that a command which ends in time pays next to nothing.
    """

    def __init__(self, process: Process, timeout_s: float | None) -> None:
        self._process = process
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._killing: asyncio.Task[None] | None = None
        self._bound = asyncio.timeout(None if timeout_s is None else timeout_s + END_AFTER_KILL_S)
        self.passed = False

    async def __aenter__(self) -> Self:
        await self._bound.__aenter__()
        if self._timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._fire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._killing is not None:
            await asyncio.wait([self._killing])
        try:
            await self._bound.__aexit__(kind, error, trace)
        except TimeoutError:
            raise BackendLost(why="the command was killed, but its end was never reported") from None

    def _fire(self) -> None:
        self.passed = True
        self._killing = asyncio.get_running_loop().create_task(kill_quietly(self._process))


async def kill_quietly(process: Process) -> None:
    """End the tree; whoever reads its output learns from there if that failed."""
    try:
        async with asyncio.timeout(END_AFTER_KILL_S):
            await process.kill()
    except (SandboxerError, TimeoutError) as error:
        log.warning("could not kill process %s: %s", process.process_id, error)
