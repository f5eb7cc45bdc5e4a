"""An inside port that leads outwards: its calls are announced over one line, each gets its own stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandboxer.backends.guest import Connection
from sandboxer.backends.supervisor.codec import Fields, Frame, Tag
from sandboxer.backends.supervisor.line import Line
from sandboxer.kernel.errors import GuestMisbehaved


class SupervisorRelay:
    def __init__(self, line: Line, port: int, dial: Callable[[int], Awaitable[Connection]]) -> None:
        self._line = line
        self._port = port
        self._dial = dial

    async def next_call(self) -> int:
        kind, payload = await self._line.next(None)
        if kind != Frame.ANNOUNCE:
            raise GuestMisbehaved(why=f"frame {kind:#x} instead of an announcement")
        announced = Fields(payload)
        if announced.u32(Tag.PORT) != self._port:
            raise GuestMisbehaved(why="a call to a port that was not asked about")
        return announced.u64(Tag.CALL)

    async def accept(self, call: int) -> Connection:
        return await self._dial(call)

    async def close(self) -> None:
        self._line.close()
