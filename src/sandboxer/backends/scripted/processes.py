"""Implements a process of the fake: a task, a bounded ring of what it printed, and readers that come and
go.
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from sandboxer.backends.guest import Command, EndReason, Exit, Output, ProcessInfo, Stream, TerminalSize
from sandboxer.kernel.errors import Conflict, GuestRefused, StdinNotTaken

KEEP_BYTES = 256 * 1024
_DEADLY = {signals.SIGTERM, signals.SIGKILL, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT}


class Stdin:
    """Gives a process its input: bytes until `close`."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.is_closed = False
        self.accepted = 0
        self._changed = asyncio.Event()

    def write(self, data: bytes) -> None:
        if self.is_closed and data:
            raise StdinNotTaken(
                taken_bytes=0, offered_bytes=len(data), why="its stdin is closed", reason="closed"
            )
        self._data += data
        self.accepted += len(data)
        self._changed.set()

    def close(self) -> None:
        self.is_closed = True
        self._changed.set()

    async def read(self) -> bytes:
        """Returns the input that is there; b"" at the end."""
        while not self._data and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._data)
        self._data.clear()
        return data

    async def read_line(self) -> bytes | None:
        while b"\n" not in self._data and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        if not self._data:
            return None
        line, _, rest = bytes(self._data).partition(b"\n")
        self._data[:] = rest
        return line


class Ring:
    """Keeps the last output. A slow reader holds the writer back while it is attached; one that left does
    not.
    """

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, Output]] = deque()
        self._bytes = 0
        self._next = 0
        self._lost: dict[Stream, int] = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self.is_over = False
        # Position of each attached reader.
        self.readers: dict[object, int] = {}
        self._moved = asyncio.Condition()

    async def put(self, stream: Stream, data: bytes) -> None:
        for start in range(0, len(data), 32 * 1024):
            await self._put(Output(stream, data[start : start + 32 * 1024]))

    async def end(self) -> None:
        async with self._moved:
            self.is_over = True
            self._moved.notify_all()

    async def take(self, reader: object) -> Output | None:
        """Returns the next chunk for this reader; None at the end."""
        async with self._moved:
            while True:
                for number, output in self._chunks:
                    if number >= self.readers[reader]:
                        dropped = self._lost[output.stream] if self.readers[reader] < number else 0
                        self.readers[reader] = number + 1
                        self._moved.notify_all()
                        return Output(output.stream, output.data, dropped)
                if self.is_over:
                    return None
                await self._moved.wait()

    async def detach(self, reader: object) -> None:
        async with self._moved:
            self.readers.pop(reader, None)
            self._moved.notify_all()

    async def _put(self, output: Output) -> None:
        async with self._moved:
            while self._bytes + len(output.data) > KEEP_BYTES and self._chunks:
                number, oldest = self._chunks[0]
                if any(position <= number for position in self.readers.values()):
                    await self._moved.wait()
                    continue
                self._chunks.popleft()
                self._bytes -= len(oldest.data)
                self._lost[oldest.stream] += len(oldest.data)
            self._chunks.append((self._next, output))
            self._next += 1
            self._bytes += len(output.data)
            self._moved.notify_all()


@dataclass(eq=False)
class Job:
    """One command and everything it started."""

    process_id: str
    pid: int
    command: Command
    started_at: float
    stdin: Stdin = field(default_factory=Stdin)
    ring: Ring = field(default_factory=Ring)
    exit: Exit | None = None
    main: asyncio.Task[None] | None = None
    # Everything that `&` and setsid left running.
    children: set[asyncio.Task[None]] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    # A signal that is to end it.
    fatal: int | None = None
    # A task that is cancelled before its first step never runs at all.
    has_begun: bool = False

    def info(self) -> ProcessInfo:
        return ProcessInfo(
            process_id=self.process_id,
            pid=self.pid,
            argv=tuple(self.command.argv),
            tag=self.command.tag,
            started_at=self.started_at,
            has_terminal=self.command.terminal is not None,
            exit=self.exit,
            deadline=self.command.deadline,
            stdin_bytes=self.stdin.accepted,
        )

    def begin(self, work: Callable[[], Awaitable[int]]) -> None:
        self.main = asyncio.get_running_loop().create_task(self._live(work))

    def kill(self, reason: EndReason | None = EndReason.KILLED) -> None:
        for child in tuple(self.children):
            child.cancel()
        if self.main is not None and self.exit is None:
            self._end(signals.SIGKILL)

    def signal(self, number: int) -> None:
        if self.exit is not None:
            raise GuestRefused(path=self.process_id, errno_name="ESRCH")
        if number in _DEADLY and self.main is not None:
            self._end(number)

    def _end(self, number: int) -> None:
        self.fatal = number
        if self.has_begun and self.main is not None:
            self.main.cancel()

    async def _live(self, work: Callable[[], Awaitable[int]]) -> None:
        self.has_begun = True
        try:
            if self.fatal is not None:
                raise asyncio.CancelledError
            self.exit = Exit(code=await work())
        except asyncio.CancelledError:
            number = self.fatal or signals.SIGKILL
            self.exit = Exit(code=128 + number, signal=number)
        finally:
            self.ended.set()
            await self.ring.end()


class ScriptedProcess:
    """One attachment to a job."""

    def __init__(self, job: Job, forget: Callable[[str], None]) -> None:
        self._job = job
        self._forget = forget
        job.ring.readers[self] = 0

    @property
    def process_id(self) -> str:
        return self._job.process_id

    @property
    def pid(self) -> int:
        return self._job.pid

    @property
    def stdin_bytes(self) -> int | None:
        return self._job.stdin.accepted

    async def __aenter__(self) -> ScriptedProcess:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._job.ring.detach(self)

    async def output(self) -> AsyncIterator[Output | Exit]:
        while (chunk := await self._job.ring.take(self)) is not None:
            yield chunk
        await self._job.ended.wait()
        assert self._job.exit is not None
        if not self._job.command.keep:
            self._forget(self.process_id)
        yield self._job.exit

    async def write_stdin(self, data: bytes) -> None:
        feed_job(self._job, data)

    async def close_stdin(self) -> None:
        self._job.stdin.close()

    async def resize(self, size: TerminalSize) -> None:
        if self._job.command.terminal is None:
            raise GuestRefused(path=self.process_id, errno_name="ENOTTY")

    async def signal(self, number: int) -> None:
        self._job.signal(number)

    async def kill(self) -> None:
        self._job.kill()


def feed_job(job: Job, data: bytes, *, close: bool = False, offset: int | None = None) -> None:
    """Gives input to a job, which accepts everything at once while it lives. Raises StdinNotTaken,
    Conflict.
    """
    if offset is not None:
        if offset > job.stdin.accepted:
            raise Conflict(why="bytes before these are missing", reason="stdin_gap")
        data = data[job.stdin.accepted - offset :]
    if job.exit is not None and data:
        raise StdinNotTaken(taken_bytes=0, offered_bytes=len(data), why="it has ended", reason="ended")
    job.stdin.write(data)
    if close:
        job.stdin.close()
