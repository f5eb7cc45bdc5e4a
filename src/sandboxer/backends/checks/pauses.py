"""Checks of freezing, stopping, and of ports inside."""

from __future__ import annotations

import asyncio

from sandboxer.backends.checks.commands import BEAT
from sandboxer.backends.checks.suite import Bench, Box, Suite, expect, raises, until
from sandboxer.backends.contract import Capability, Freezes, Presence, Stops
from sandboxer.backends.guest import Command, Output
from sandboxer.kernel.errors import BackendLost, GuestRefused

suite = Suite()
# The comment is for backends whose sandboxes have no Python: it says what the program does.
ECHO_SERVER = """
# scripted: echo-server 4242
import socket
listener = socket.create_server(("127.0.0.1", 4242))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
"""


async def beat(box: Box) -> bytes:
    return b"".join([part async for part in (await box.guest()).files.read("/tmp/beat")])


async def begin_to_beat(box: Box) -> None:
    argv = ("/bin/sh", "-c", BEAT)
    async with await (await box.guest()).run(Command(argv=argv, env={"PATH": "/usr/bin:/bin"})):
        pass

    async def began() -> bool:
        return (await box.run("test -e /tmp/beat")).exit.code == 0

    await until(began, "the loop never began")


async def still(box: Box) -> bool:
    before = await beat(box)
    await asyncio.sleep(0.3)
    return before == await beat(box)


@suite.check("a frozen sandbox costs no CPU, and its files can be fetched", needs=Capability.FREEZE)
async def freezing_stops_every_process_and_leaves_files_readable(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Freezes)
    async with bench.box() as box:
        await begin_to_beat(box)
        await backend.freeze(box.handle)
        seen = await bench.backend.recover(box.handle)
        expect(seen.presence is Presence.FROZEN, f"it is {seen.presence}")
        expect(await still(box), "something still runs")
        await (await box.guest()).ping()
        await backend.thaw(box.handle)

        async def moves() -> bool:
            return not await still(box)

        await until(moves, "nothing runs after the thaw")


@suite.check("requests are repeated", needs=Capability.FREEZE)
async def freezing_and_thawing_twice_is_success(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Freezes)
    async with bench.box() as box:
        for act in (backend.freeze, backend.freeze, backend.thaw, backend.thaw):
            await act(box.handle)
        expect((await box.run("echo hi")).stdout == b"hi\n", "it does not work after the thaw")


@suite.check("TTL ends frozen sandboxes too", needs=Capability.FREEZE)
async def a_frozen_sandbox_can_be_removed(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Freezes)
    async with bench.box() as box:
        await begin_to_beat(box)
        await backend.freeze(box.handle)
        await bench.backend.teardown(box.order.sandbox_id)
        expect((await bench.backend.recover(box.handle)).presence is Presence.GONE, "it is not gone")


@suite.check("stopped means: costs a disk and nothing else", needs=Capability.STOP)
async def stopping_ends_processes_and_resuming_finds_the_disk(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Stops)
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        await begin_to_beat(box)
        await backend.stop(box.handle)
        await backend.stop(box.handle)
        seen = await bench.backend.recover(box.handle)
        expect(seen.presence is Presence.STOPPED, f"it is {seen.presence}")
        expect(box.order.sandbox_id in await bench.backend.inventory(), "a stopped sandbox is not listed")
        async with raises(BackendLost):
            await (await bench.backend.guest(box.handle)).ping()
        handle = await backend.resume(box.handle, box.order)
        again = Box(bench.backend, box.order, handle)
        expect((await again.run("cat /root/kept")).stdout == b"kept\n", "the disk is not the old one")
        expect(
            not [p for p in await (await again.guest()).processes() if p.exit is None], "something still runs"
        )
        expect((await bench.backend.recover(handle)).presence is Presence.RUNNING, "it does not run")


@suite.check("what is kept is removed in the end", needs=Capability.STOP)
async def a_stopped_sandbox_can_be_removed(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Stops)
    async with bench.box() as box:
        await backend.stop(box.handle)
        await bench.backend.teardown(box.order.sandbox_id)
        expect((await bench.backend.recover(box.handle)).presence is Presence.GONE, "it is not gone")


@suite.check("services inside are reached through the host")
async def a_port_inside_can_be_talked_to(bench: Bench) -> None:
    async with bench.box() as box:
        guest = await box.guest()
        argv = ("python3", "-c", ECHO_SERVER)
        command = Command(argv=argv, env={"PATH": "/usr/local/bin:/usr/bin:/bin"})
        async with await guest.run(command) as process:
            async for item in process.output():
                expect(isinstance(item, Output) and b"listening" in item.data, f"the server said {item}")
                break
            connection = await guest.connect(4242)
            await connection.write(b"over the wall")
            await connection.close_write()
            received = b""
            while part := await connection.read():
                received += part
            await connection.close()
            expect(received == b"over the wall", f"the echo was {received!r}")
            await process.kill()


@suite.check("a service may be down")
async def a_port_where_nobody_listens_is_refused(bench: Bench) -> None:
    async with bench.box() as box, raises(GuestRefused):
        await (await box.guest()).connect(4243)
