"""A stack on a real SSH host comes up, or says why not. Whatever breaks is said, and leaves nothing."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.checks.suite import collect
from sandboxer.backends.compose_ssh import ComposeSshBackend, open_compose_ssh
from sandboxer.backends.contract import Handle, Presence
from sandboxer.backends.guest import Command, whole
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    DiskFull,
    NoCapacity,
    ProvisionFailed,
    Unavailable,
)
from tests.support.real_backend import make_order
from tests.support.remote_host import SMALL, RemoteMachine, known_host, remote_machine

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
# Says what it was given as a variable, at a port that only its network reaches.
WEB = f"""
services:
  web:
    image: {SMALL}
    command: ["sh", "-c", "mkdir -p /www; echo hello $TOKEN > /www/index.html; httpd -f -p 8000 -h /www"]
    environment: {{TOKEN: "${{TOKEN}}"}}
    volumes: ["data:/data", "./:/code:ro"]
    healthcheck: {{test: ["CMD", "wget", "-qO-", "http://127.0.0.1:8000/"], interval: 1s, retries: 30}}
  migrate:
    image: {SMALL}
    command: ["test", "-f", "/code/compose.yml"]
    volumes: ["./:/code:ro"]
  aside:
    image: {SMALL}
    command: ["sleep", "1000"]
    networks: [back]
volumes: {{data: {{}}}}
networks: {{back: {{}}}}
""".replace("hello $TOKEN", "hello $$TOKEN")
NEVER = f"""
services:
  slow:
    image: {SMALL}
    command: ["sleep", "1000"]
    healthcheck: {{test: ["CMD", "test", "-e", "/never"], interval: 1s, retries: 1000}}
"""
ENDS = f"""
services:
  broken: {{image: "{SMALL}", command: ["sh", "-c", "echo no such table; exit 3"]}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine() -> AsyncIterator[RemoteMachine]:
    async with remote_machine() as found:
        await found.make_small_image()
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def backend(machine: RemoteMachine) -> AsyncIterator[ComposeSshBackend]:
    async with open_compose_ssh(machine.settings(image=SMALL, ready_within_s=20)) as opened:
        yield opened
        for sandbox_id in await opened.inventory():
            await opened.teardown(sandbox_id)
    assert await machine.is_clean()


async def put(backend: ComposeSshBackend, handle: Handle, text: str) -> None:
    files = (await backend.guest(handle)).files
    await files.write("/workspace/e2e/compose.yml", whole(text.encode()))


async def say(backend: ComposeSshBackend, handle: Handle, *argv: str) -> bytes:
    guest = await backend.guest(handle)
    async with await guest.run(Command(argv=argv, env={"PATH": "/bin"})) as process:
        ran = await collect(process.output())
    return ran.stdout + ran.stderr


async def test_a_stack_comes_up_beside_its_sandbox_and_goes_with_it(
    machine: RemoteMachine, backend: ComposeSshBackend
) -> None:
    handle = await backend.provision(make_order())
    await put(backend, handle, WEB)
    assert await backend.bring_up(handle, "e2e/compose.yml", {"TOKEN": "it's me"})
    assert await say(backend, handle, "wget", "-qO-", "http://web:8000/") == b"hello it's me\n"
    # All of its networks are the sandbox's too, and none leads outside.
    names = (await machine.docker("network", "ls", "-q", "--filter", "type=custom")).split()
    for name in names:
        said = await machine.docker("network", "inspect", "--format", "{{.Internal}} {{.Containers}}", name)
        assert said.startswith("true")
        assert handle.sandbox_id in said
    assert (await backend.usage(handle)).processes > 1
    # Up already is success, and a stop ends all of it.
    assert await backend.bring_up(handle, "e2e", {"TOKEN": "it's me"})
    await backend.stop(handle)
    assert not await machine.docker("ps", "-q")
    handle = await backend.resume(handle, make_order())
    assert await backend.bring_up(handle, "e2e", {"TOKEN": "again"})
    assert await say(backend, handle, "wget", "-qO-", "http://web:8000/") == b"hello again\n"
    await backend.teardown(handle.sandbox_id)
    assert await machine.is_clean()
    assert not await backend.inventory()


async def test_without_a_compose_file_there_is_no_stack(backend: ComposeSshBackend) -> None:
    handle = await backend.provision(make_order())
    assert not await backend.bring_up(handle, None, {})
    assert not await backend.bring_up(handle, "e2e/compose.yml", {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (NEVER, "slow is starting"),
        (ENDS, "no such table"),
        ("services: {web: {image: no-such-image-anywhere}}", "no-such-image-anywhere"),
        ("services: {web: {", "compose"),
    ],
    ids=["never ready", "ends", "no image", "no YAML"],
)
async def test_a_stack_that_does_not_come_up_says_why(machine: RemoteMachine, text: str, why: str) -> None:
    async with open_compose_ssh(machine.settings(image=SMALL, ready_within_s=6)) as backend:
        handle = await backend.provision(make_order())
        await put(backend, handle, text)
        with pytest.raises(ProvisionFailed, match=why) as failed:
            await backend.bring_up(handle, "e2e/compose.yml", {})
        assert failed.value.facts["promise"] == "inputs.compose_bundle_ref"
        await backend.teardown(handle.sandbox_id)
    assert await machine.is_clean()


async def test_a_bring_up_that_is_cancelled_ends_with_its_sandbox(
    machine: RemoteMachine, backend: ComposeSshBackend
) -> None:
    handle = await backend.provision(make_order())
    await put(backend, handle, NEVER)
    bringing = asyncio.ensure_future(backend.bring_up(handle, "e2e", {}))
    await machine.until("ps", "-q", count=2)
    bringing.cancel()
    await backend.teardown(handle.sandbox_id)
    assert await machine.is_clean()


async def test_a_host_with_another_key_is_not_spoken_to(machine: RemoteMachine) -> None:
    wrong = machine.home / "wrong_hosts"
    wrong.write_text(known_host(machine, "other_key"))
    async with open_compose_ssh(machine.settings(known_hosts=wrong, image=SMALL)) as backend:
        with pytest.raises(Unavailable, match="its key is not the one") as refused:
            await backend.provision(make_order())
        assert refused.value.facts["reason"] == "host_key"
        assert not (await backend.fingerprint()).healthy
    assert await machine.is_clean()


async def test_a_host_that_is_down_is_said_to_be_and_comes_back(
    machine: RemoteMachine, backend: ComposeSshBackend
) -> None:
    handle = await backend.provision(make_order())
    await machine.stop_sshd()
    try:
        with pytest.raises(BackendLost):
            await (await backend.guest(handle)).ping()
        with pytest.raises(Unavailable):
            await backend.recover(handle)
        with pytest.raises(Unavailable):
            await backend.check_host()
        with pytest.raises(Unavailable):
            await backend.provision(make_order())
    finally:
        await machine.start_sshd()
    await (await backend.guest(handle)).ping()
    assert (await backend.recover(handle)).presence is Presence.RUNNING
    assert await backend.inventory() == [handle.sandbox_id]


async def test_a_connection_that_breaks_loses_a_stream_and_no_process(
    machine: RemoteMachine, backend: ComposeSshBackend
) -> None:
    handle = await backend.provision(make_order())
    guest = await backend.guest(handle)
    command = Command(argv=("sh", "-c", "echo on; sleep 1000"), env={"PATH": "/bin"})
    async with await guest.run(command, process_id="prc_long") as process:
        output = process.output()
        await anext(output)
        await machine.break_connections()
        with pytest.raises(BackendLost):
            await anext(output)
    running = await (await backend.guest(handle)).processes()
    assert [(one.process_id, one.exit) for one in running] == [("prc_long", None)]


async def test_a_break_while_it_is_made_leaves_nothing(
    machine: RemoteMachine, backend: ComposeSshBackend
) -> None:
    for _ in range(3):
        making = asyncio.ensure_future(backend.provision(make_order()))
        await machine.until("network", "ls", "-q", "--filter", "type=custom", count=1)
        await machine.break_connections()
        try:
            made = await making
        except Unavailable:
            # What went on there without us is found, and removed when that is asked for.
            for sandbox_id in await backend.inventory():
                await backend.teardown(sandbox_id)
        else:
            await backend.teardown(made.sandbox_id)


@contextmanager
def small_disk(machine: RemoteMachine) -> Iterator[Path]:
    folder = machine.home / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=64", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    with suppress(OSError):
        for number in range(10_000):
            (folder / f"ballast-{number}").write_bytes(bytes(65536))
    with suppress(OSError):
        for number in range(10_000):
            (folder / f"empty-{number}").touch()


async def test_a_full_disk_refuses_and_leaves_nothing(machine: RemoteMachine) -> None:
    with small_disk(machine) as folder:
        async with open_compose_ssh(machine.settings(remote_dir=folder, image=SMALL)) as backend:
            handle = await backend.provision(make_order())
            fill(folder)
            files = (await backend.guest(handle)).files
            with pytest.raises(DiskFull):
                await files.write("/workspace/more", whole(b"x"))
            with pytest.raises(Unavailable, match="disk"):
                await backend.check_host()
            with pytest.raises(ProvisionFailed, match="No space left"):
                await backend.provision(make_order())
            assert await backend.inventory() == [handle.sandbox_id]
            await backend.teardown(handle.sandbox_id)
    assert await machine.is_clean()


async def test_a_host_takes_so_many_and_an_id_once(machine: RemoteMachine) -> None:
    async with open_compose_ssh(machine.settings(image=SMALL, at_most=2)) as backend:
        order = make_order()
        handle = await backend.provision(order)
        with pytest.raises(Conflict):
            await backend.provision(order)
        # It is as it was.
        await (await backend.guest(handle)).ping()
        other = await backend.provision(make_order())
        with pytest.raises(NoCapacity):
            await backend.provision(make_order())
        for one in (handle, other):
            await backend.teardown(one.sandbox_id)
    assert await machine.is_clean()


async def test_what_listens_for_deaths_ends_with_the_backend_or_its_connection(
    machine: RemoteMachine,
) -> None:
    for breaks in (False, True):
        async with open_compose_ssh(machine.settings(image=SMALL)) as backend:
            hearing = asyncio.ensure_future(anext(backend.deaths()))
            await machine.until_listeners(1)
            if breaks:
                await machine.break_connections()
                await machine.until_listeners(0)
            hearing.cancel()
            async with asyncio.timeout(10):
                await asyncio.wait([hearing])
        await machine.until_listeners(0)


async def test_a_sandbox_that_ends_by_itself_is_heard_of(
    machine: RemoteMachine, backend: ComposeSshBackend
) -> None:
    handle = await backend.provision(make_order())
    deaths = backend.deaths()
    hearing = asyncio.ensure_future(anext(deaths))
    await machine.docker("kill", handle.sandbox_id)
    async with asyncio.timeout(30):
        assert await hearing == handle.sandbox_id
    assert (await backend.recover(handle)).presence is Presence.STOPPED
