"""`Exec` runs one command from start to end: it keeps the output up to a limit or passes it on as it comes,
and enforces the time limit.

If the caller goes away (cancellation, or the stream is closed), everything the command started is killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from sandboxer.backends.guest import EndReason, Exit, Output, Process, Stream
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import BackendLost, GuestRefused, StdinNotTaken
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.deadline import Deadline, kill_quietly
from sandboxer.work.lines import EXEC_TAG, Line, Lines, Wanted, launch

STDIN_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command to run to its end."""

    wanted: Wanted
    timeout_s: float
    stdin: bytes | None = None
    # Bytes kept of each stream; None keeps everything, which only `stream` allows.
    output_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    process_id: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    exit_code: int
    timed_out: bool
    truncated: bool
    duration_ms: float
    reason: EndReason | None
    # How many bytes of the given stdin the command's pipe accepted; None if none was given or the guest does
    # not say.
    stdin_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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
