"""Runs inside a sandbox, with nothing but Python: a WebSocket at `/PORT` is carried to that port there.

It prints the port that it listens on. The platform carries HTTP and WebSockets into a sandbox, and no other
protocol; by this, any other can use it (`forward`).
"""

import asyncio
import base64
import hashlib
import struct

_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
MOST = 64 * 1024 * 1024


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        heads = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
        }
        port = int(first.split()[1].rpartition(b"/")[2])
        try:
            there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Nothing listens\r\nContent-Length: 0\r\n\r\n")
            return
        accept = base64.b64encode(hashlib.sha1(heads[b"sec-websocket-key"] + _KEY).digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        await _carry(reader, writer, *there)
    except (OSError, ValueError, LookupError, EOFError, asyncio.LimitOverrunError):
        pass  # It went away, or is no WebSocket; nobody is left to be told.
    finally:
        writer.close()


async def _carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there_reader: asyncio.StreamReader,
    there_writer: asyncio.StreamWriter,
) -> None:
    ways = {
        asyncio.ensure_future(_inward(reader, writer, there_writer)),
        asyncio.ensure_future(_outward(there_reader, writer)),
    }
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
    finally:
        for way in ways:
            way.cancel()
        there_writer.close()


async def _inward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamWriter
) -> None:
    while True:
        first, second = await reader.readexactly(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
        if size > MOST or not second & 128:
            raise ValueError("a frame of a client is masked, and not so large")
        data = _unmasked(await reader.readexactly(4), await reader.readexactly(size))
        kind = first & 15
        if kind == _CLOSE:
            return
        if kind == _PING:
            writer.write(_frame(_PONG, data))
        elif kind != _PONG:
            there.write(data)
            await there.drain()


async def _outward(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await there.read(65536):
        writer.write(_frame(_BINARY, data))
        await writer.drain()
    writer.write(_frame(_CLOSE, struct.pack(">H", 1000)))


def _unmasked(mask: bytes, data: bytes) -> bytes:
    key = int.from_bytes((mask * (len(data) // 4 + 1))[: len(data)], "big")
    return (int.from_bytes(data, "big") ^ key).to_bytes(len(data), "big")


def _frame(kind: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return bytes([128 | kind, size]) + data
    if size < 65_536:
        return struct.pack(">BBH", 128 | kind, 126, size) + data
    return struct.pack(">BBQ", 128 | kind, 127, size) + data


if __name__ == "__main__":
    asyncio.run(main())
