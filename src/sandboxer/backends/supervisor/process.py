"""One attached process: its output as it comes, its input, and what is asked about it on other lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from sandboxer.backends.guest import Exit, Output, Process, Stream, TerminalSize
from sandboxer.backends.supervisor.codec import (
    Fields,
    Flag,
    Frame,
    Tag,
    text,
    u32,
)
from sandboxer.backends.supervisor.line import Line
from sandboxer.backends.supervisor.refusals import refusal
from sandboxer.backends.supervisor.stdin import ProcessInput
from sandboxer.kernel.errors import GuestMisbehaved, NotFound

_STREAMS = {Frame.STDOUT: Stream.STDOUT, Frame.STDERR: Stream.STDERR}
SIGKILL = 9


class Ask(Protocol):
    """One request on a line of its own, answered by DONE."""

    async def __call__(self, kind: Frame, payload: bytes, *, subject: str) -> None: ...


def read_exit(answer: Fields) -> Exit:
    if Tag.SIGNAL in answer:
        number = answer.u32(Tag.SIGNAL, most=64)
        return Exit(code=128 + number, signal=number)
    return Exit(code=answer.u32(Tag.CODE, most=255))


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
        """With cgroups the backend kills the whole tree; without, the process group is the best there is."""
        if self._on_kill:
            await self._on_kill()
            return
        payload = text(Tag.ID, self._process_id) + u32(Tag.SIGNAL, SIGKILL) + u32(Tag.FLAGS, Flag.GROUP)
        try:
            await self._ask(Frame.SIGNAL, payload, subject=self._process_id)
        except NotFound:
            return  # ended already
