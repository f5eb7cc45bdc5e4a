"""Ports of a sandbox, as ports of this machine."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from sandboxer.sdk.adapters.forward import forward
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.commands import Chunk
from sandboxer.sdk.errors import SdkError
from tests.support.platforms import Up

# Says how much it was sent, and what; then it goes on as an echo.
SERVER = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("127.0.0.1", 7000), Echo)
print("listens", flush=True)
server.serve_forever()
"""


async def echoed(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sending = asyncio.ensure_future(_sent(writer, data))
    got = await reader.readexactly(len(data))
    await sending
    writer.close()
    return got


async def _sent(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def test_any_protocol_reaches_a_port_inside(up: Up) -> None:
    async with (
        AsyncSandboxer(owner_file=up.owner_file, url=up.url) as client,
        await client.create() as sandbox,
    ):
        server = await sandbox.processes.start(["python3", "-c", SERVER])
        async for piece in sandbox.processes.output(server.process_id):
            if isinstance(piece, Chunk):
                break
        async with forward(sandbox, [7000, 7001]) as here:
            data = os.urandom(3_000_001)
            # Each size of a frame, and many at once.
            sizes = [1, 125, 126, 65_535, 65_536, len(data)]
            got = await asyncio.gather(*(echoed(here[7000], data[:size]) for size in sizes))
            assert [hashlib.sha256(one).digest() for one in got] == [
                hashlib.sha256(data[:size]).digest() for size in sizes
            ]
            # Nothing listens there: the connection ends.
            reader, writer = await asyncio.open_connection("127.0.0.1", here[7001])
            assert await reader.read() == b""
            writer.close()
            left, ended = here[7000], await asyncio.open_connection("127.0.0.1", here[7000])
        # Whoever is still connected at the end is let go, and nobody is let in.
        assert await ended[0].read() == b""
        ended[1].close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", left)
        assert [
            one for one in await sandbox.processes.list() if one.running and "relay" in str(one.argv)
        ] == []


@pytest.mark.parametrize("words", ["yes no", "echo 5x", "printf '%5000d\\n' 1 | tr ' ' 1"])
async def test_what_is_no_python_inside_is_said_and_not_heard_for_ever(up: Up, words: str) -> None:
    async with (
        AsyncSandboxer(owner_file=up.owner_file, url=up.url) as client,
        await client.create() as sandbox,
    ):
        await sandbox.files.write("/usr/local/bin/python3", f"#!/bin/sh\n{words}\n", mode=0o755)
        async with asyncio.timeout(30):
            with pytest.raises(SdkError, match="did not start"):
                async with forward(sandbox, [7000]):
                    pass
