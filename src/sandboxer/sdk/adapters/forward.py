"""Ports of a sandbox as ports of this machine, for programs that speak something else than HTTP.

A connection goes by a signed WebSocket through the platform to `relay`, which runs inside: so it works where
the API is reached, and no port is opened to anybody else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.call import NOTHING, Call
from sandboxer.sdk.commands import MAX_FRAME, Chunk, dialed, dialing
from sandboxer.sdk.errors import SdkError

PROGRAM = Path(__file__).with_name("relay.py")
PIECE, MOST_SAID = 65_536, 4096
_DOOR = re.compile(rb"([0-9]{1,5})\n")


@asynccontextmanager
async def forward(sandbox: AsyncSandbox, ports: Sequence[int]) -> AsyncIterator[dict[int, int]]:
    """Yields which port here leads to each of `ports` inside; needs `python3` there.

    Examples:
        >>> async with forward(sandbox, [5432]) as here:
        ...     print(f"psql -h 127.0.0.1 -p {here[5432]}")
    """
    relay = await sandbox.processes.start(["python3", "-c", PROGRAM.read_text()])
    connections: set[asyncio.Task[None]] = set()
    servers: dict[int, asyncio.Server] = {}
    try:
        door = await _door_of(sandbox, relay.process_id)
        for port in ports:
            target = f"/v1/sandboxes/{sandbox.id}/ports/{door}/{port}"
            servers[port] = await asyncio.start_server(_taking(connections, sandbox, target), "127.0.0.1")
        yield {port: server.sockets[0].getsockname()[1] for port, server in servers.items()}
    finally:
        for server in servers.values():
            server.close()
        await _ended(connections)
        with suppress(SdkError):  # The sandbox may be gone, and the relay with it.
            await sandbox.processes.end(relay.process_id)


async def _ended(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        for task in (await asyncio.wait(tasks))[0]:
            # Seen, so that nobody warns of it: whatever it was, the connection is over.
            _ = task.cancelled() or task.exception()


async def _door_of(sandbox: AsyncSandbox, relay_id: str) -> int:
    said = b""
    async for piece in sandbox.processes.output(relay_id):
        if isinstance(piece, Chunk):
            said += piece.data
            if piece.stream == "stdout" and (found := _DOOR.fullmatch(said)):
                return int(found[1])
            # What is called python3 there may go on for ever.
            if len(said) > MOST_SAID:
                break
    raise SdkError(
        f"The relay inside did not start: {said[:MOST_SAID].decode(errors='replace').strip()}",
        next_step="Use an image that has python3.",
    )


Taken = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


def _taking(connections: set[asyncio.Task[None]], sandbox: AsyncSandbox, target: str) -> Taken:
    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_carry(sandbox, target, reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    return take


async def _carry(
    sandbox: AsyncSandbox, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Ends with the first side that goes away: the other one sees its connection end."""
    with suppress(OSError, WebSocketException), closing(writer):
        async with await _dialed(sandbox, target) as connection:
            ways = [
                asyncio.ensure_future(_inward(reader, connection)),
                asyncio.ensure_future(_outward(connection, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _ended(ways)


async def _dialed(sandbox: AsyncSandbox, target: str) -> ClientConnection:
    line = sandbox._line
    call: Call[None] = Call(operation="port", method="GET", target=target, answer=NOTHING)
    url, headers = dialing(line.signer, line.url, call)
    return await connect(
        url,
        sock=dialed(line.socket),
        additional_headers=headers,
        proxy=None,
        compression=None,
        max_size=MAX_FRAME,
    )


async def _inward(reader: asyncio.StreamReader, connection: ClientConnection) -> None:
    while data := await reader.read(PIECE):
        await connection.send(data)
    await connection.close()


async def _outward(connection: ClientConnection, writer: asyncio.StreamWriter) -> None:
    async for data in connection:
        writer.write(data if isinstance(data, bytes) else data.encode())
        await writer.drain()
