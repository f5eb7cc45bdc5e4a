"""A terminal as a client has it."""

from __future__ import annotations

from websockets.asyncio.client import ClientConnection, connect

from tests.support.http.served import Served
from tests.support.http.signed import target


def dial(served: Served, path: str, **query: object) -> connect:
    where = target(f"{path}/terminal", **query)
    head = served.client.credentials.head("GET", where)
    return connect(served.url.replace("http", "ws") + where, additional_headers=head, proxy=None)


async def read_until(socket: ClientConnection, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        frame = await socket.recv()
        if isinstance(frame, bytes):
            seen += frame
    return seen
