"""Inside ports that lead outwards: announced to the host, which dials a stream for each call."""

from __future__ import annotations

import asyncio

import pytest

from sandboxer.backends.guest import Command, Relay
from sandboxer.kernel.errors import BackendLost, GuestRefused
from tests.support.guest import Box, eventually, no_workers

PORT = 3128
CALL = """
import socket, sys
s = socket.create_connection((sys.argv[1], 3128), timeout=10)
s.sendall(b"from inside")
print(s.recv(100).decode(), flush=True)
s.shutdown(socket.SHUT_WR)
while s.recv(65536): pass
"""


async def answer(relay: Relay, said: bytes) -> bytes:
    connection = await relay.accept(await asyncio.wait_for(relay.next_call(), 10))
    heard = await connection.read()
    await connection.write(said)
    assert await connection.read() == b""
    await connection.close()
    return heard


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_whoever_connects_inside_gets_a_stream_to_the_host(box: Box, host: str) -> None:
    relay = await box.guest.listen(PORT)
    async with asyncio.TaskGroup() as group:
        ran = group.create_task(box.run("python3", "-c", CALL, host))
        assert await answer(relay, b"from outside") == b"from inside"
    assert ran.result().stdout == b"from outside\n", ran.result().stderr
    await relay.close()
    await no_workers(box)


async def test_callers_wait_while_a_server_restarts_and_the_next_one_answers(box: Box) -> None:
    await (await box.guest.listen(PORT)).close()
    async with asyncio.TaskGroup() as group:
        ran = group.create_task(box.run("python3", "-c", CALL, "127.0.0.1"))
        relay = await box.guest.listen(PORT)
        await answer(relay, b"after all")
    assert ran.result().stdout == b"after all\n"


async def test_a_second_listener_takes_the_port_over(box: Box) -> None:
    first = await box.guest.listen(PORT)
    second = await box.guest.listen(PORT)
    with pytest.raises(BackendLost):
        await asyncio.wait_for(first.next_call(), 5)
    async with asyncio.TaskGroup() as group:
        group.create_task(box.run("python3", "-c", CALL, "127.0.0.1"))
        await answer(second, b"yes")


async def test_a_port_that_a_program_inside_holds_is_refused_and_unlisten_gives_it_back(box: Box) -> None:
    hold = "import socket, time; s = socket.create_server(('127.0.0.1', 3128)); print('up', flush=True)"
    async with await box.guest.run(Command(argv=["python3", "-c", f"{hold}; time.sleep(60)"])) as process:
        await anext(aiter(process.output()))
        with pytest.raises(GuestRefused) as caught:
            await box.guest.listen(PORT)
        assert caught.value.facts["errno_name"] == "EADDRINUSE"
        await process.kill()

    async def is_listened_on() -> bool:
        try:
            await box.guest.listen(PORT)
        except GuestRefused:
            return False
        return True

    await eventually(is_listened_on)
    await box.guest.unlisten(PORT)
    await box.guest.unlisten(PORT)
    ran = await box.run("python3", "-c", CALL, "127.0.0.1")
    assert b"ConnectionRefusedError" in ran.stderr


async def test_a_flood_of_callers_is_bounded_and_each_is_served(box: Box) -> None:
    relay = await box.guest.listen(PORT)
    flood = """
import socket
calls = [socket.create_connection(("127.0.0.1", 3128), timeout=20) for _ in range(100)]
for call in calls: call.sendall(b"x")
print(sum(call.recv(1) == b"y" for call in calls))
"""
    async with asyncio.TaskGroup() as group:
        ran = group.create_task(box.run("python3", "-c", flood))
        for _ in range(100):
            connection = await relay.accept(await asyncio.wait_for(relay.next_call(), 20))
            assert await connection.read() == b"x"
            await connection.write(b"y")
            await connection.close()
    assert ran.result().stdout == b"100\n", ran.result().stderr
    with pytest.raises(GuestRefused):
        await relay.accept(1)
    await relay.close()
    await no_workers(box)
