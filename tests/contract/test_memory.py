"""Behind gVisor a sandbox is kept with what runs in it, and goes on in each copy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from sandboxer.backends.checks.suite import Box, FullBackend
from sandboxer.backends.contract import Capability, Content, Presence, capabilities_of
from sandboxer.backends.guest import Command, Output
from sandboxer.kernel.values import new_id
from sandboxer.wiring.oci import open_oci
from sandboxer.wiring.remembering import RememberingBackend
from tests.support.oci import require_runtime
from tests.support.real_backend import clear, make_order, remove_leftovers, settings_for, state_folder

# `make test-slow` builds runsc first.
pytestmark = pytest.mark.slow

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
# A variable, a listening server, an open file; each line on stdin is answered with all three.
SESSION = """
import socket, sys
x = 42
listener = socket.create_server(("127.0.0.1", 4242))
book = open("/root/book", "a+")
book.write("begun "); book.flush()
print("ready", flush=True)
for line in sys.stdin:
    book.write(line.strip() + " "); book.flush(); book.seek(0)
    client = socket.create_connection(listener.getsockname()); listener.accept()
    print(x, book.read(), flush=True)
"""


@pytest_asyncio.fixture
async def backend() -> AsyncIterator[RememberingBackend]:
    runtime = require_runtime("runsc")
    with state_folder() as state:
        async with open_oci(settings_for(state), runtime=runtime) as opened:
            assert isinstance(opened, RememberingBackend)
            yield opened
            await clear(opened)
        remove_leftovers(opened)


async def begin_session(box: Box) -> None:
    command = Command(
        argv=("python3", "-c", SESSION), has_stdin=True, env={"PATH": "/usr/local/bin:/usr/bin:/bin"}
    )
    async with await (await box.guest()).run(command, process_id="prc_session") as process:
        async for item in process.output():
            assert isinstance(item, Output)
            assert item.data == b"ready\n"
            return


async def told(box: Box, word: bytes) -> bytes:
    """Returns what the session answers to a line."""
    async with await (await box.guest()).attach("prc_session") as process:
        await process.write_stdin(word + b"\n")
        said = b""
        async for item in process.output():
            assert isinstance(item, Output)
            said += item.data
            if word in said and said.endswith(b"\n"):
                return said.splitlines()[-1]
    raise AssertionError(f"the session ended after {said!r}")


async def test_a_session_goes_on_in_ten_copies_and_in_itself(backend: RememberingBackend) -> None:
    assert Capability.MEMORY in capabilities_of(backend)
    walled: FullBackend = backend
    order = make_order()
    box = Box(walled, order, await backend.provision(order))
    await begin_session(box)
    disk_id = new_id("snp")
    kept = await backend.take_with_memory(box.handle, disk_id)
    assert kept.content is Content.FILES_AND_MEMORY

    async def go_on(word: bytes) -> bytes:
        again = replace(make_order(), origin=disk_id)
        return await told(Box(walled, again, await backend.provision(again)), word)

    words = [b"copy%d" % number for number in range(10)]
    answers = await asyncio.gather(*(go_on(word) for word in words))
    assert answers == [b"42 begun %s " % word for word in words]
    assert await told(box, b"itself") == b"42 begun itself "
    await backend.drop(disk_id)


async def test_what_is_kept_with_memory_outlives_its_sandbox_and_is_dropped_whole(
    backend: RememberingBackend,
) -> None:
    walled: FullBackend = backend
    order = make_order()
    box = Box(walled, order, await backend.provision(order))
    await begin_session(box)
    disk_id = new_id("snp")
    await backend.freeze(box.handle)
    await backend.take_with_memory(box.handle, disk_id)
    await box.demand(Presence.FROZEN)
    await backend.teardown(order.sandbox_id)
    again = replace(make_order(), origin=disk_id)
    copy = Box(walled, again, await backend.provision(again))
    assert await told(copy, b"later") == b"42 begun later "
    # Stopped, it has only its disk; started again, it begins as any other.
    await backend.stop(copy.handle)
    resumed = replace(copy, handle=await backend.resume(copy.handle, again))
    assert not await resumed.running()
    assert await resumed.text("cat /root/book") == b"begun later "
    await backend.drop(disk_id)
    assert not list((backend.dependencies.settings.state_dir / "memory").iterdir())


COUNT = "for number in $(seq 300); do echo $number; sleep 0.004; done"
ECHO = "while read word; do echo $word; done"


async def test_whoever_reads_or_writes_while_it_is_kept_misses_nothing(backend: RememberingBackend) -> None:
    walled: FullBackend = backend
    order = make_order()
    box = Box(walled, order, await backend.provision(order))
    disks = [new_id("snp") for _ in range(3)]

    async def counted() -> bytes:
        guest = await box.guest()
        async with await guest.run(Command(argv=("sh", "-c", COUNT), env=PATH)) as process:
            return b"".join([item.data async for item in process.output() if isinstance(item, Output)])

    async def echoed() -> bytes:
        guest = await box.guest()
        said = b""
        command = Command(argv=("sh", "-c", ECHO), has_stdin=True, env=PATH)
        async with await guest.run(command) as process:
            for number in range(300):
                await process.write_stdin(b"%d\n" % number)
            async for item in process.output():
                assert isinstance(item, Output)
                said += item.data
                if said.endswith(b"299\n"):
                    return said
        raise AssertionError(said)

    async def keep() -> None:
        for disk_id in disks:
            await backend.take_with_memory(box.handle, disk_id)

    numbers, words, _ = await asyncio.gather(counted(), echoed(), keep())
    assert numbers == b"".join(b"%d\n" % number for number in range(1, 301))
    assert words == b"".join(b"%d\n" % number for number in range(300))
    for disk_id in disks:
        await backend.drop(disk_id)
