"""The API's listener serves ports by path as well: a connection changes hands with each request that asks so.

Only at the very beginning of a request, when the one before is read and answered in full: nothing that came
as a body is ever taken for a request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sandboxer.edges.proxy.client import ClientConnection, House
from sandboxer.edges.proxy.path_door import PathDoor


def api_protocol(house: House, door: PathDoor) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which hands requests for ports to the proxy."""

    class ApiProtocol(HttpToolsProtocol):
        def __init__(self, *words: Any, **more: Any) -> None:
            super().__init__(*words, **more)
            self._is_in_message = False
            self._beginning = b""

        def on_message_begin(self) -> None:
            self._is_in_message = True
            super().on_message_begin()

        def on_message_complete(self) -> None:
            self._is_in_message = False
            super().on_message_complete()

        def data_received(self, data: bytes) -> None:
            if self._is_between():
                data = self._beginning + data
                if door.is_mine(data):
                    self._beginning = b""
                    self._hand_over(data)
                    return
                self._beginning = data if door.may_be_mine(data) else b""
                if self._beginning:
                    return
            super().data_received(data)

        def _is_between(self) -> bool:
            cycle = self.cycle
            is_answered = cycle is None or cycle.response_complete
            return is_answered and not self._is_in_message and not self.pipeline

        def _hand_over(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            self.connections.discard(self)
            taker = PortsByPath(house, door, self)
            self.transport.set_protocol(taker)
            taker.connection_made(self.transport)
            taker.data_received(data)

        def take_back(self, data: bytes) -> None:
            self.connections.add(self)
            self.transport.set_protocol(self)
            self.data_received(data)

    return ApiProtocol


class PortsByPath(ClientConnection):
    """Serves ports until something else is asked for, and gives the connection back then."""

    def __init__(self, house: House, door: PathDoor, giver: Any) -> None:
        super().__init__(house, door)
        self._giver = giver

    def _pass_door(self) -> None:
        data, self._buffer = self._buffer, b""
        self._house.connections.discard(self)
        self._giver.take_back(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._giver.connection_lost(exc)
