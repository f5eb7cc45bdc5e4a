"""Streams to ports inside."""

from __future__ import annotations

import asyncio
import os

import pytest

from sandboxer.backends.guest import Command, Connection, Output, Process
from sandboxer.kernel.errors import GuestRefused, InvalidRequest
from tests.support.guest import Box, no_workers

ECHO = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.create_server((sys.argv[1], 8000), family=family)
print("up", flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536):
        c.sendall(data)
    c.sendall(b"-- end")
    c.close()
"""


async def serve(box: Box, host: str = "127.0.0.1") -> Process:
    process = await box.guest.run(Command(argv=["python3", "-c", ECHO, host]))
    item = await anext(aiter(process.output()))
    assert isinstance(item, Output)
    assert item.data == b"up\n", item.data
    return process


async def read_all(connection: Connection) -> bytes:
    parts = []
    while part := await connection.read():
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_bytes_go_both_ways_and_half_close_is_kept(box: Box, host: str) -> None:
    await serve(box, host)
    connection = await box.guest.connect(8000)
    await connection.write(b"hello")
    assert await connection.read(3) == b"hel"
    assert await connection.read() == b"lo"
    await connection.close_write()
    assert await read_all(connection) == b"-- end"
    assert await connection.read() == b""
    await connection.close()


async def test_a_lot_goes_through(box: Box) -> None:
    await serve(box)
    data = os.urandom(20_000_000)
    connection = await box.guest.connect(8000)

    async def feed() -> None:
        for at in range(0, len(data), 1 << 20):
            await connection.write(data[at : at + (1 << 20)])
        await connection.close_write()

    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        read = group.create_task(read_all(connection))
    assert read.result() == data + b"-- end"


async def test_a_port_nobody_listens_on_is_refused(box: Box) -> None:
    with pytest.raises(GuestRefused) as caught:
        await box.guest.connect(9)
    assert caught.value.facts["errno_name"] == "ECONNREFUSED"
    with pytest.raises(InvalidRequest):
        await box.guest.connect(0)


async def test_closing_ends_the_relay_on_both_sides(box: Box) -> None:
    process = await serve(box)
    connection = await box.guest.connect(8000)
    await process.kill()
    assert await connection.read() == b""
    await connection.close()
    await no_workers(box)


async def test_a_host_that_leaves_ends_a_relay_to_a_server_that_never_answers(box: Box) -> None:
    server = "import socket, time; s = socket.create_server(('127.0.0.1', 8000)); print('up', flush=True)"
    server += "; c, _ = s.accept(); time.sleep(60)"
    async with await box.guest.run(Command(argv=["python3", "-c", server])) as process:
        await anext(aiter(process.output()))
        connection = await box.guest.connect(8000)
        await connection.write(b"hello")
        await connection.close_write()
        await connection.close()
        await no_workers(box)
        await process.kill()
