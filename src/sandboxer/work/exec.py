"""`Exec` runs one command from start to end: it keeps the output up to a limit or passes it on as it comes,
and enforces the time limit.

If the caller goes away (cancellation, or the stream is closed), everything the command started is killed.

`Deadline` limits the time of one command and waits for its end after the kill; `Overdue` limits background
processes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self

from sandboxer.backends.guest import EndReason, Exit, Guest, Output, Process, Stream
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.clock import Clock, sleep_unless_woken
from sandboxer.kernel.errors import BackendLost, GuestRefused, SandboxerError, StdinNotTaken
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.lines import EXEC_TAG, Line, Lines, Wanted, launch

STDIN_CHUNK = 64 * 1024


@value_class
class Run:
    """A command to run to its end."""

    wanted: Wanted
    timeout_s: float
    stdin: bytes | None = None
    # Bytes kept of each stream; None keeps everything, which only `stream` allows.
    output_limit: int | None = None


@value_class
class Started:
    process_id: str
    pid: int


@value_class
class End:
    exit_code: int
    timed_out: bool
    truncated: bool
    duration_ms: float
    reason: EndReason | None
    # How many bytes of the given stdin the command's pipe accepted; None if none was given or the guest does
    # not say.
    stdin_bytes: int | None = None


@value_class
class Result:
    """How a command ended and what it printed; the output counts against the caller's lease."""

    end: End
    stdout: bytes | bytearray
    stderr: bytes | bytearray


@dataclass(slots=True)
class _Limited:
    """Passes on the first `limit` bytes of one stream."""

    limit: int | None
    seen: int = 0
    truncated: bool = False

    def take(self, output: Output) -> bytes:
        """Returns the part of the output that is within the limit."""
        if output.dropped:
            self.truncated = True
        room = len(output.data) if self.limit is None else max(0, self.limit - self.seen)
        self.seen += len(output.data)
        if room >= len(output.data):
            return output.data
        self.truncated = True
        return output.data[:room]


class Exec:
    """Runs commands in sandboxes."""

    def __init__(self, lines: Lines, clock: Clock) -> None:
        self._lines = lines
        self._clock = clock

    async def run(self, sandbox_id: str, caller: Caller, run: Run, lease: Lease) -> Result:
        """Returns everything the command printed, up to the limit, and how it ended.

        Kept output is taken from `lease`; while there is no memory left the command waits, and is killed if
        that lasts.
        """
        kept = {stream: bytearray() for stream in Stream}
        async with aclosing(self.stream(sandbox_id, caller, run)) as items:
            async for item in items:
                if isinstance(item, Output):
                    await lease.grow(len(item.data))
                    kept[item.stream] += item.data
                elif isinstance(item, End):
                    return Result(end=item, stdout=kept[Stream.STDOUT], stderr=kept[Stream.STDERR])
        raise BackendLost(why="the command's output ended without its exit")

    async def stream(
        self, sandbox_id: str, caller: Caller, run: Run
    ) -> AsyncGenerator[Started | Output | End]:
        """Yields the same as it happens: Started, outputs, one End. Closing the generator kills
        the command.
        """
        async with self._lines.open(sandbox_id, caller, ActivityKind.EXEC) as line:
            began = time.monotonic()
            process = await self._start(line, run)
            limits = {stream: _Limited(run.output_limit) for stream in Stream}
            ended: Exit | None = None
            async with (
                process,
                killed_unless_ended(process) as guard,
                Deadline(process, run.timeout_s) as deadline,
            ):
                yield Started(process_id=process.process_id, pid=process.pid)
                async with Feeding(process, run.stdin) as feeding:
                    async for item in process.output():
                        if isinstance(item, Exit):
                            ended = item
                            break
                        if part := limits[item.stream].take(item):
                            yield Output(item.stream, part, item.dropped)
                if ended is None:
                    raise BackendLost(why="the command's output ended without its exit")
                guard.ended = True
            await self._lines.check_standing(sandbox_id, ended.code if ended.signal else None)
            truncated = any(one.truncated for one in limits.values())
            yield _end(ended, deadline.passed, truncated, began, feeding)

    async def _start(self, line: Line, run: Run) -> Process:
        return await launch(
            line.guest,
            run.wanted,
            line.env,
            tag=EXEC_TAG,
            keep=False,
            has_stdin=run.stdin is not None,
            deadline=self._clock.now().timestamp() + run.timeout_s,
        )


def _end(ended: Exit, timed_out: bool, truncated: bool, began: float, feeding: Feeding) -> End:
    # A command that ended by itself while the kill was under way was not timed out.
    by_kill = timed_out and ended.signal is not None
    return End(
        exit_code=ended.code,
        timed_out=by_kill,
        truncated=truncated,
        duration_ms=round((time.monotonic() - began) * 1000, 3),
        reason=EndReason.TIMED_OUT if by_kill else ended.reason,
        stdin_bytes=feeding.taken,
    )


class killed_unless_ended:
    """Kills the process on leaving unless it has ended: when a client vanishes, nothing keeps running
    unattended.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self.ended = False

    async def __aenter__(self) -> killed_unless_ended:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.ended:
            await kill_quietly(self._process)


class Feeding:
    """Writes stdin while the output is read; either of them alone could wait for the other for ever.

    `resume` means that a previous server fed the process before; what its stdin accepted then is not written
    again.
    """

    def __init__(self, process: Process, stdin: bytes | None, *, resume: bool = False) -> None:
        self._process = process
        self._stdin = stdin
        self._at = (process.stdin_bytes or 0) if resume else 0
        self._is_counted = process.stdin_bytes is not None
        self._task: asyncio.Task[None] | None = None

    @property
    def taken(self) -> int | None:
        """Returns how many bytes the process's stdin accepted, or None if its guest does not say."""
        return self._at if self._stdin is not None and self._is_counted else None

    async def __aenter__(self) -> Feeding:
        if self._stdin is not None:
            self._task = asyncio.create_task(self._feed(self._stdin))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _feed(self, stdin: bytes) -> None:
        try:
            while piece := stdin[self._at : self._at + STDIN_CHUNK]:
                await self._process.write_stdin(piece)
                self._at += len(piece)
            await self._process.close_stdin()
        except StdinNotTaken as error:
            # It ended or closed its stdin before it had read everything; `taken` tells how much it read.
            taken = error.facts.get("taken_bytes")
            self._at += taken if isinstance(taken, int) else 0
        except (GuestRefused, BackendLost):
            # Whoever reads the output learns how it ended.
            return


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
            self._put_off(error, sandbox_id, _ALL)

    async def run(self) -> None:
        """Enforces limits until it is cancelled. A sandbox that does not answer delays no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._sooner.clear()
                now = self._clock.now().timestamp()
                while self._heap and self._heap[0][0] <= now:
                    _, sandbox_id, process_id = heapq.heappop(self._heap)
                    group.create_task(self._attend(sandbox_id, process_id))
                delay = timedelta(seconds=self._heap[0][0] - now) if self._heap else None
                await sleep_unless_woken(self._clock, self._sooner, delay)

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
            self._put_off(error, sandbox_id, process_id)

    def _put_off(self, error: SandboxerError, sandbox_id: str, process_id: str) -> None:
        """Tries a frozen sandbox again later. One that is gone needs no limits."""
        if error.code == "illegal_transition" and error.facts.get("state") == "frozen":
            self._again(sandbox_id, process_id)
        else:
            what = f"process {process_id}" if process_id else "processes"
            log.warning("could not keep the time limits of %s of %s: %s", what, sandbox_id, error)

    def _again(self, sandbox_id: str, process_id: str) -> None:
        self.watch(sandbox_id, process_id, self._clock.now().timestamp() + RETRY_S)

    def _remember(self, process_id: str) -> None:
        self._killed[process_id] = None
        while len(self._killed) > MEMORY:
            self._killed.popitem(last=False)
