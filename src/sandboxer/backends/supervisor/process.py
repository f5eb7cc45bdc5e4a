"""Implements one attached process: its output as it comes, its input, and requests about it on other lines.

Input counts as written only when the process's pipe has it. A guest of protocol version 2 acknowledges
each STDIN and STDIN_EOF with one TAKEN, in order. An older one says nothing. On a line that stays open until
the process ends nothing can be lost even there; a line that was dialled for one piece of input
(`feed_silently`) is half-closed and read until the guest closes it, which it does only after it dealt with
everything before: the bytes are in the pipe, or the process closed its stdin.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from sandboxer.backends.guest import EndReason, Exit, Output, Process, Stream, TerminalSize
from sandboxer.backends.supervisor.codec import (
    HEADER,
    MAX_PAYLOAD,
    VERSION_TAKEN,
    Fields,
    Flag,
    Frame,
    Tag,
    frame,
    refusal,
    text,
    u32,
)
from sandboxer.backends.supervisor.line import Line
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    GuestMisbehaved,
    NotFound,
    SandboxerError,
    StdinNotTaken,
)

_STREAMS = {Frame.STDOUT: Stream.STDOUT, Frame.STDERR: Stream.STDERR}
SIGKILL = 9
_WHY = {
    errno.ESRCH: "it has ended",
    errno.EPIPE: "its stdin is closed",
    errno.ERANGE: "bytes before these are missing",
}


class Ask(Protocol):
    """Sends one request on a line of its own, answered by DONE."""

    async def __call__(self, kind: Frame, payload: bytes, *, subject: str) -> None: ...


# A piece of input is settled by how many of its bytes were taken, and the errno of why no more were.
Settled = tuple[int, int]


def read_exit(answer: Fields) -> Exit:
    if Tag.SIGNAL in answer:
        number = answer.u32(Tag.SIGNAL, most=64)
        return Exit(code=128 + number, signal=number, reason=_reason(answer))
    code = answer.u32(Tag.CODE, most=255)
    return Exit(code=code, reason=_reason(answer) if code else None)


def _reason(answer: Fields) -> EndReason | None:
    """Returns what only the guest knows, where a kernel of its own counts processes."""
    flags = answer.u32(Tag.FLAGS) if Tag.FLAGS in answer else 0
    return EndReason.PIDS_EXHAUSTED if flags & Flag.REFUSED else None


class SupervisorProcess(Process):
    def __init__(
        self,
        line: Line,
        ask: Ask,
        *,
        process_id: str,
        pid: int,
        stdin_bytes: int | None,
        on_kill: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._line = line
        self._ask = ask
        self._process_id = process_id
        self._pid = pid
        self._on_kill = on_kill
        self._exit: Exit | None = None
        self._stdin_bytes = stdin_bytes
        self._input = ProcessInput(line)

    @property
    def process_id(self) -> str:
        return self._process_id

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def stdin_bytes(self) -> int | None:
        return self._stdin_bytes

    async def __aenter__(self) -> SupervisorProcess:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.detach()

    def detach(self) -> None:
        self._line.close()

    async def output(self) -> AsyncIterator[Output | Exit]:
        dropped = {Stream.STDOUT: 0, Stream.STDERR: 0}
        while self._exit is None:
            kind, payload = await self._line.next(None)
            if kind in (Frame.STDOUT, Frame.STDERR):
                stream = _STREAMS[Frame(kind)]
                lost, dropped[stream] = dropped[stream], 0
                yield Output(stream, payload, lost)
            elif kind == Frame.EXIT:
                self._exit = read_exit(Fields(payload))
            elif kind == Frame.DROPPED:
                note = Fields(payload)
                stream = Stream.STDERR if note.u32(Tag.STREAM, most=1) else Stream.STDOUT
                dropped[stream] += note.u64(Tag.COUNT)
            elif kind == Frame.ERROR:
                raise refusal(payload, subject=self._process_id)
            else:
                raise GuestMisbehaved(why=f"frame {kind:#x} among a process's output")
        for stream, lost in dropped.items():
            if lost:
                yield Output(stream, b"", lost)
        yield self._exit

    async def write_stdin(self, data: bytes) -> None:
        await self._input.write(data)

    async def close_stdin(self) -> None:
        await self._input.close()

    async def resize(self, size: TerminalSize) -> None:
        payload = text(Tag.ID, self._process_id) + u32(Tag.COLS, size.cols) + u32(Tag.ROWS, size.rows)
        await self._ask(Frame.RESIZE, payload, subject=self._process_id)

    async def signal(self, number: int) -> None:
        payload = text(Tag.ID, self._process_id) + u32(Tag.SIGNAL, number)
        await self._ask(Frame.SIGNAL, payload, subject=self._process_id)

    async def kill(self) -> None:
        """Kills the process group. A backend with cgroups kills the whole tree instead."""
        if self._on_kill:
            await self._on_kill()
            return
        payload = text(Tag.ID, self._process_id) + u32(Tag.SIGNAL, SIGKILL) + u32(Tag.FLAGS, Flag.GROUP)
        try:
            await self._ask(Frame.SIGNAL, payload, subject=self._process_id)
        except NotFound:
            return  # ended already


class ProcessInput:
    """Writes the input of one attached process."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waiting: deque[tuple[asyncio.Future[Settled], int]] = deque()
        self._over: SandboxerError | None = None
        self._ended = False
        self._is_acknowledged = line.version >= VERSION_TAKEN
        if self._is_acknowledged:
            line.divert(self)

    async def write(self, data: bytes) -> None:
        """Returns when the process's pipe has all of it. Raises StdinNotTaken, BackendLost.

        If it is cancelled, a part may have been accepted; the rest of a piece under way follows while the
        line is open.
        """
        view, accepted = memoryview(data), 0
        for at in range(0, len(view), MAX_PAYLOAD):
            piece = view[at : at + MAX_PAYLOAD]
            if not self._is_acknowledged:
                self._line.send(HEADER.pack(len(piece), Frame.STDIN), piece)
                await self._line.drain()
                continue
            count, number = await self._settled(len(piece), HEADER.pack(len(piece), Frame.STDIN), piece)
            accepted += count
            if count < len(piece):
                raise not_accepted(accepted, len(data), number)

    async def close(self) -> None:
        """Closes the input and returns after everything written before was accepted. Closed already is
        success.
        """
        if self._is_acknowledged:
            await self._settled(0, frame(Frame.STDIN_EOF))
        else:
            self._line.send(frame(Frame.STDIN_EOF))

    async def _settled(self, length: int, *parts: bytes | memoryview) -> Settled:
        if self._ended:
            return 0, errno.ESRCH
        if self._over:
            raise self._over
        settled: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append((settled, length))
        self._line.send(*parts)
        return await settled

    # ---- of the line ----

    def heard(self, kind: int, payload: bytes) -> bool:
        if kind == Frame.TAKEN:
            if not self._waiting:
                raise GuestMisbehaved(why="input was taken that nobody sent")
            answer = Fields(payload)
            settled, length = self._waiting.popleft()
            count = answer.u64(Tag.COUNT, most=length)
            number = answer.u32(Tag.ERRNO, most=4095) if Tag.ERRNO in answer else 0
            if not settled.done():
                settled.set_result((count, number))
            return True
        if kind in (Frame.EXIT, Frame.ERROR):
            # The reader of the output learns how it ended; whoever writes, that it did.
            self._ended = True
            while self._waiting:
                settled, _ = self._waiting.popleft()
                if not settled.done():
                    settled.set_result((0, errno.ESRCH))
        return False

    def lost(self, error: SandboxerError) -> None:
        self._over = self._over or error
        while self._waiting:
            settled, _ = self._waiting.popleft()
            if not settled.done():
                settled.set_exception(error)


def not_accepted(accepted: int, offered: int, number: int) -> SandboxerError:
    why = _WHY.get(number, errno.errorcode.get(number, "no reason was given"))
    if number == errno.ERANGE:
        hint = "Ask how many bytes its stdin took, and go on from there."
        return Conflict(why=why, reason="stdin_gap", hint=hint)
    reason = "ended" if number == errno.ESRCH else "closed"
    return StdinNotTaken(taken_bytes=accepted, offered_bytes=offered, why=why, reason=reason)


async def feed_silently(line: Line, data: bytes, *, close: bool, process_id: str) -> None:
    """Feeds a process of a guest that acknowledges nothing. The line cannot be used afterwards."""
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(_until_closed(line, process_id))
        view = memoryview(data)
        for at in range(0, len(view), MAX_PAYLOAD):
            piece = view[at : at + MAX_PAYLOAD]
            line.send(HEADER.pack(len(piece), Frame.STDIN), piece)
            await line.drain()
        if close:
            line.send(frame(Frame.STDIN_EOF))
        line.shut_write()
        has_ended = await closing
    if has_ended and data:
        why = "it has ended, and its older supervisor does not say how much it took"
        raise StdinNotTaken(taken_bytes="some", offered_bytes=len(data), why=why, reason="ended")


async def _until_closed(line: Line, process_id: str) -> bool:
    """Waits until the input is closed. Returns True if the process ended first."""
    while True:
        try:
            kind, payload = await line.next(None)
        except BackendLost:
            return False
        if kind == Frame.EXIT:
            return True
        if kind == Frame.ERROR:
            raise refusal(payload, subject=process_id)
