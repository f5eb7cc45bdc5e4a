"""Questions in JSON over HTTP, answered on a port of loopback by a plain function: a node that the code under
test reaches as it reaches any other. It runs on the loop of the schedule, so that a question and an act of
the driver never meet in the middle.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

# (path, document) -> what is answered; None: the line is cut instead.
Answer = Callable[[str, Any], dict[str, Any] | None]
_HEAD_ENDS = b"\r\n\r\n"


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """The address at which it is answered. Lines stay open between questions, as those of real nodes do."""
    lines: set[asyncio.Transport] = set()
    server = await asyncio.get_running_loop().create_server(lambda: _Line(answer, lines), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for line in tuple(lines):
            line.abort()
        await server.wait_closed()


class _Line(asyncio.Protocol):
    def __init__(self, answer: Answer, lines: set[asyncio.Transport]) -> None:
        self._answer = answer
        self._lines = lines
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._lines.add(transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._lines.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(_HEAD_ENDS)
        length = _length(head)
        if not found or len(rest) < length:
            return
        self._received = rest[length:]
        said = self._answer(head.split(b" ", 2)[1].decode(), json.loads(rest[:length]))
        if said is None:
            self._transport.abort()
            return
        body = json.dumps(said).encode()
        kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        self._transport.write(kind + b"content-length: %d" % len(body) + _HEAD_ENDS + body)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
