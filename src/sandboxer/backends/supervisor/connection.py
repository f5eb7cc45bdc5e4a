"""A byte stream to a port inside a sandbox."""

from __future__ import annotations

from sandboxer.backends.guest import Connection, HandedOver
from sandboxer.backends.supervisor.codec import Frame
from sandboxer.backends.supervisor.line import Line
from sandboxer.kernel.errors import BackendLost, GuestMisbehaved


class SupervisorConnection(Connection):
    def __init__(self, line: Line) -> None:
        self._line = line
        self._rest = b""
        self._ended = False

    async def read(self, limit: int = 65536) -> bytes:
        if not self._rest and not self._ended:
            try:
                kind, self._rest = await self._line.next(None)
            except BackendLost:
                # A relay that ends looks the same whether the server inside or the sandbox went away.
                self._ended = True
                return b""
            if kind != Frame.RAW:
                raise GuestMisbehaved(why=f"frame {kind:#x} in a relayed stream")
        piece, self._rest = self._rest[:limit], self._rest[limit:]
        return piece

    async def write(self, data: bytes) -> None:
        self._line.send(data)
        await self._line.drain()

    async def close_write(self) -> None:
        self._line.shut_write()

    async def close(self) -> None:
        """What was written still arrives: whoever sends and hangs up at once loses nothing."""
        self._line.finish()

    def hand_over(self) -> HandedOver:
        """The bare socket. This object is of no use afterwards."""
        handed = self._line.hand_over()
        received, self._rest, self._ended = self._rest + handed.received, b"", True
        return HandedOver(handed.sock, received, handed.closed)
