"""Engines are reached by the way that is named, and by nobody who may not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.checks.suite import collect
from sandboxer.backends.docker.address import Address, parse_address
from sandboxer.backends.docker.backend import DockerBackend
from sandboxer.backends.guest import Command
from sandboxer.kernel.errors import BackendLost, InvalidRequest, NotAvailable, Unavailable
from sandboxer.wiring.docker import open_docker
from tests.support.engines import backend_on, docker_settings
from tests.support.real_backend import make_order
from tests.support.remote_host import PORT, RemoteMachine, known_host, remote_machine

AT = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:///run/docker.sock", Address(scheme="unix", path="/run/docker.sock")),
        ("tcp://rack:2377", Address(scheme="tcp", host="rack", port=2377)),
        ("tcp://[::1]", Address(scheme="tcp", host="::1", port=2376)),
        ("ssh://rack", Address(scheme="ssh", host="rack", path="/var/run/docker.sock")),
        (
            "ssh://anna@rack:2222/run/podman/podman.sock",
            Address(scheme="ssh", host="rack", port=2222, user="anna", path="/run/podman/podman.sock"),
        ),
    ],
)
def test_an_address_names_one_of_three_ways(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "rack",
            "http://rack",
            "unix://rack/sock",
            "unix:",
            "tcp://",
            "tcp://rack/path",
            "tcp://rack:x",
        ),
        *("ssh://", "ssh://anna:secret@rack", "tcp://rack?tls=no", "ssh://rack#a", "tcp://rack:99999"),
    ],
)
def test_what_names_none_is_refused_with_the_three(text: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"unix:///var/run/docker\.sock, tcp://host:2376 or ssh://user@host"
    ):
        parse_address(text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine() -> AsyncIterator[RemoteMachine]:
    async with remote_machine() as found:
        yield found


async def refused(host: str, keys: Path | None, state: Path) -> str:
    async with AsyncExitStack() as closing:
        with pytest.raises((Unavailable, NotAvailable)) as error:
            await closing.enter_async_context(backend_on(host, state, keys))
    return f"{error.value.facts['why']} {error.value.facts.get('hint')}"


@pytest.mark.slow
@AT
async def test_by_tls_neither_an_engine_nor_a_client_without_a_key_of_the_authority_is_spoken_to(
    machine: RemoteMachine, tmp_path: Path
) -> None:
    host, keys = machine.by_tls
    assert "nothing goes there in clear" in await refused(host, None, tmp_path)
    assert "does not hold ca.pem" in await refused(host, tmp_path, tmp_path)
    # The engine hangs up on whoever the authority does not know, with or without a word.
    said = await refused(host, machine.home / "stranger", tmp_path)
    assert "does not answer" in said
    assert "the authority of the certificate" in said
    other = tmp_path / "other"
    shutil.copytree(keys, other)
    shutil.copy(machine.home / "stranger/cert.pem", other / "ca.pem")
    assert "certificate verify failed" in (await refused(host, other, tmp_path)).lower()


@pytest.mark.slow
@AT
async def test_by_ssh_a_host_with_another_key_is_not_spoken_to(
    machine: RemoteMachine, tmp_path: Path
) -> None:
    host, keys = machine.by_ssh
    shutil.copy(keys / "key", tmp_path / "key")
    (tmp_path / "known_hosts").write_text(known_host(machine, "other_key"))
    assert "not trusted" in await refused(host, tmp_path, tmp_path)
    (tmp_path / "known_hosts").write_text(known_host(machine, "host_key"))
    shutil.copy(keys / "other_key", tmp_path / "key")
    assert "denied" in (await refused(host, tmp_path, tmp_path)).lower()
    assert "cannot be reached" in await refused(f"ssh://root@{machine.address}:{PORT + 1}", keys, tmp_path)


@pytest.mark.slow
@AT
async def test_a_connection_by_ssh_that_breaks_is_made_again_and_loses_no_process(
    machine: RemoteMachine, tmp_path: Path
) -> None:
    host, keys = machine.by_ssh
    async with backend_on(host, tmp_path, keys) as backend:
        await _break_and_go_on(machine, backend)


@pytest.mark.slow
@AT
async def test_an_engine_that_is_down_keeps_no_platform_from_starting_again(
    machine: RemoteMachine, tmp_path: Path
) -> None:
    host, keys = machine.by_ssh
    await machine.stop_sshd()
    try:
        assert "cannot be reached" in await refused(host, keys, tmp_path)
    finally:
        await machine.start_sshd()
    async with backend_on(host, tmp_path, keys) as backend:
        before = await backend.fingerprint()
    await machine.stop_sshd()
    async with open_docker(docker_settings(host, tmp_path, keys)) as backend:
        try:
            seen = await backend.fingerprint()
            assert not seen.healthy
            assert [lack.what for lack in seen.lacks] == ["its engine"]
            with pytest.raises(Unavailable):
                await backend.provision(make_order())
        finally:
            await machine.start_sshd()
        # It is as it was, without another start.
        assert await backend.fingerprint() == before
        await backend.teardown((await backend.provision(make_order())).sandbox_id)


async def _break_and_go_on(machine: RemoteMachine, backend: DockerBackend) -> None:
    handle = await backend.provision(make_order())
    guest = await backend.guest(handle)
    command = Command(argv=("sh", "-c", "echo on; sleep 1000"), env={"PATH": "/bin"})
    async with await guest.run(command, process_id="prc_long") as process:
        output = process.output()
        await anext(output)
        await machine.break_connections()
        with pytest.raises(BackendLost):
            await anext(output)
    async with asyncio.timeout(30):
        running = await (await backend.guest(handle)).processes()
    assert [(one.process_id, one.exit) for one in running] == [("prc_long", None)]
    again = await (await backend.guest(handle)).run(Command(argv=("echo", "back"), env={"PATH": "/bin"}))
    async with again:
        assert (await collect(again.output())).stdout == b"back\n"
