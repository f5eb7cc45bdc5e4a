"""Time limits. `Deadline` limits one command and waits for its end after the kill; `Overdue` limits
background processes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Self

from sandboxer.backends.guest import Guest, Process
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import BackendLost, SandboxerError

log = logging.getLogger(__name__)
# Killing a process tree takes milliseconds; a sandbox that does not confirm it within this time is lost.
END_AFTER_KILL_S = 10.0


class Deadline:
    """`async with Deadline(process, timeout_s)` kills the process when its time is over; `passed` tells so
    afterwards.

    It never cancels the reader inside, which goes on to read the last output and the exit. It is a timer and
    not a task, so that a command which ends in time pays next to nothing.
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
    """Kills the process tree. A failure is only logged: whoever reads the output learns of it there."""
    try:
        async with asyncio.timeout(END_AFTER_KILL_S):
            await process.kill()
    except (SandboxerError, TimeoutError) as error:
        log.warning("could not kill process %s: %s", process.process_id, error)


# How many processes are remembered as timed out; a guest keeps the last 64 of each sandbox.
MEMORY = 10_000
# A sandbox that cannot be reached now (frozen, say) is tried again after this.
RETRY_S = 5.0
# Stands for all processes of a sandbox.
_ALL = ""

OpenGuest = Callable[[str], AbstractAsyncContextManager[Guest]]


class Overdue:
    """Kills background processes whose time limit is over, with one loop and one heap instead of a task per
    process.

    Limits are stored beside the sandbox; `adopt` reads them again after a restart of the server.
    """

    def __init__(self, clock: Clock, open_guest: OpenGuest) -> None:
        self._clock = clock
        self._open_guest = open_guest
        self._heap: list[tuple[float, str, str]] = []
        self._sooner = asyncio.Event()
        self._killed: OrderedDict[str, None] = OrderedDict()

    def watch(self, sandbox_id: str, process_id: str, deadline: float) -> None:
        heapq.heappush(self._heap, (deadline, sandbox_id, process_id))
        self._sooner.set()

    def killed(self, process_id: str) -> bool:
        """Tells whether its time limit ended the process."""
        return process_id in self._killed

    async def adopt(self, sandbox_id: str) -> None:
        """Reads the limits of what already runs in a sandbox."""
        try:
            async with self._open_guest(sandbox_id) as guest:
                for info in await guest.processes():
                    if info.exit is None and info.deadline is not None:
                        self.watch(sandbox_id, info.process_id, info.deadline)
        except SandboxerError as error:
            if _is_frozen(error):
                self._again(sandbox_id, _ALL)
            else:
                log.warning("could not read time limits of %s: %s", sandbox_id, error)

    async def run(self) -> None:
        """Enforces limits until it is cancelled. A sandbox that does not answer delays no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._sooner.clear()
                now = self._clock.now().timestamp()
                while self._heap and self._heap[0][0] <= now:
                    _, sandbox_id, process_id = heapq.heappop(self._heap)
                    group.create_task(self._attend(sandbox_id, process_id))
                await self._pause(self._heap[0][0] - now if self._heap else None)

    async def _pause(self, delay_s: float | None) -> None:
        if delay_s is None:
            await self._sooner.wait()
            return
        sleeping = asyncio.ensure_future(self._clock.sleep(timedelta(seconds=delay_s)))
        waking = asyncio.ensure_future(self._sooner.wait())
        try:
            await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    async def _attend(self, sandbox_id: str, process_id: str) -> None:
        try:
            if process_id == _ALL:
                await self.adopt(sandbox_id)
            else:
                await self._kill(sandbox_id, process_id)
        except Exception:
            # An outermost loop: trouble with one sandbox must not end the limits of all.
            log.exception("could not keep the time limits of %s", sandbox_id)
            self._again(sandbox_id, process_id)

    async def _kill(self, sandbox_id: str, process_id: str) -> None:
        try:
            async with self._open_guest(sandbox_id) as guest:
                running = {info.process_id for info in await guest.processes() if info.exit is None}
                if process_id not in running:
                    return
                self._remember(process_id)
                async with await guest.attach(process_id) as process:
                    await kill_quietly(process)
        except SandboxerError as error:
            if _is_frozen(error):
                self._again(sandbox_id, process_id)
            else:
                log.warning("could not end overdue process %s of %s: %s", process_id, sandbox_id, error)

    def _again(self, sandbox_id: str, process_id: str) -> None:
        self.watch(sandbox_id, process_id, self._clock.now().timestamp() + RETRY_S)

    def _remember(self, process_id: str) -> None:
        self._killed[process_id] = None
        while len(self._killed) > MEMORY:
            self._killed.popitem(last=False)


def _is_frozen(error: SandboxerError) -> bool:
    return error.code == "illegal_transition" and error.facts.get("state") == "frozen"
