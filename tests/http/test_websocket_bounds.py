"""What a WebSocket client can make the server hold: bounded in bytes, whoever does not read."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import struct
from typing import Any

import pytest

from sandboxer.access.connections import Patience
from sandboxer.edges.front.http import AT_ONCE
from tests.support.http.served import Served, eventually
from tests.support.http.signed import target


async def _upgraded(
    served: Served, path: str, **query: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A socket that speaks frames, and whose reader we may leave alone."""
    where = target(f"{path}/terminal", **query)
    head = {
        "host": "127.0.0.1",
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
        **served.client.credentials.head("GET", where),
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]), limit=1024)
    lines = [f"GET {where} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return reader, writer


def _frame(opcode: int, payload: bytes, *, is_last: bool = True) -> bytes:
    first = (0x80 if is_last else 0) | opcode
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
    return bytes([first]) + size + b"\0\0\0\0" + payload


def _holders(served: Served) -> list[object]:
    return [slot.holder for slot in served.platform.front.slots if hasattr(slot.holder, "conn")]


async def test_pongs_to_a_client_that_does_not_read_do_not_pile_up(served: Served) -> None:
    path = await served.sandbox()
    _, writer = await _upgraded(served, path, command="cat")
    await eventually(lambda: len(_holders(served)) == 1)
    holder = _holders(served)[0]
    pings = _frame(0x9, b"p" * 125) * 1000
    most = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(6):
            for _ in range(400):
                writer.write(pings)
                await writer.drain()
                most = max(most, holder.transport.get_write_buffer_size())  # type: ignore[attr-defined]
    assert most < 1 << 20, f"{most} bytes of pongs wait for a client that does not read"
    writer.close()


async def test_others_have_their_turn_between_few_pings(served: Served) -> None:
    path = await served.sandbox()
    _, writer = await _upgraded(served, path, command="cat")
    await eventually(lambda: len(_holders(served)) == 1)
    holder: Any = _holders(served)[0]
    answered, ping = 0, _frame(0x9, b"p" * 125)
    handle = holder.handle_ping

    def count() -> None:
        nonlocal answered
        answered += 1
        handle()

    holder.handle_ping = count
    writer.write(ping * 4000)
    most = before = 0
    while answered < 4000:
        # One turn of the loop.
        await asyncio.sleep(0)
        most, before = max(most, answered - before), answered
    assert most <= AT_ONCE // len(ping) + 1, f"{most} pings were answered before anybody else was heard"
    writer.close()


async def test_a_client_that_never_reads_is_sent_away(served: Served) -> None:
    served.platform.front.patience = Patience(reader_s=1.0, closing_s=1.0)
    path = await served.sandbox()
    _, writer = await _upgraded(served, path, command="yes")
    await eventually(lambda: not _holders(served), seconds=15)
    writer.close()


async def test_thousands_of_tiny_messages_wait_as_bytes(served: Served) -> None:
    path = await served.sandbox()
    _, writer = await _upgraded(served, path, command="sleep 60")
    await eventually(lambda: len(_holders(served)) == 1)
    holder = _holders(served)[0]
    writer.write(_frame(0x2, b"x") * 30_000)
    most = 0
    for _ in range(50):
        await asyncio.sleep(0.01)
        most = max(most, holder.queue.qsize())  # type: ignore[attr-defined]
    assert most < 2000, f"{most} messages were taken apart before the first was wanted"
    writer.close()


@pytest.mark.parametrize("size", [0, 1])
async def test_a_message_in_endless_fragments_is_cut_off(served: Served, size: int) -> None:
    path = await served.sandbox()
    _, writer = await _upgraded(served, path, command="cat")
    writer.write(_frame(0x2, b"x" * size, is_last=False))
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            writer.write(_frame(0x0, b"x" * size, is_last=False) * 100)
            await writer.drain()
    await eventually(lambda: not _holders(served), seconds=5)
    writer.close()
