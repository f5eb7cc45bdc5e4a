"""The API's listener serves ports by path as well: a connection changes hands with each request that asks so.

Only at the very beginning of a request, when the one before is read and answered in full: nothing that came
as a body is ever taken for a request.
"""

from __future__ import annotations

from sandboxer.access.front.connections import Slot
from sandboxer.edges.front.http import StrictHttp
from sandboxer.edges.proxy.client import ClientConnection, House
from sandboxer.edges.proxy.path_door import PathDoor


def api_protocol(house: House, door: PathDoor) -> type[StrictHttp]:
    """The API's protocol, which hands requests for ports to the proxy."""

    class ApiProtocol(StrictHttp):
        front = house.front

        def _is_for_another(self, buffer: bytes) -> bool:
            if not door.is_mine(buffer) or self._slot is None:
                return False
            self._buffer = b""
            self.connections.discard(self)
            taker = PortsByPath(house, door, self, self._slot)
            self.transport.set_protocol(taker)
            taker.connection_made(self.transport)
            taker.data_received(buffer)
            return True

        def take_back(self, data: bytes) -> None:
            self.connections.add(self)
            self.transport.set_protocol(self)
            if self._slot is not None:
                self._slot.holder = self
            self.deadline = self._idle_until()
            self.data_received(data)

    return ApiProtocol


class PortsByPath(ClientConnection):
    """Serves ports until something else is asked for, and gives the connection back then."""

    def __init__(self, house: House, door: PathDoor, giver: StrictHttp, slot: Slot) -> None:
        super().__init__(house, door, slot)
        self._giver = giver

    def _pass_door(self) -> None:
        data, self._buffer = self._buffer, b""
        self._house.connections.discard(self)
        self._giver.take_back(data)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._giver.connection_lost(exc)
