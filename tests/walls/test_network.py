"""Network: `lo` and nothing else. What there is to reach is reached from the host first.

With a way out (trust level `semi`) connections end at the supervisor; the host says what becomes of them.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.contract import Trust
from sandboxer.backends.guest import WAY_OUT_PORT, HandsOver, Relays
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.fingerprint import steering_lacks
from tests.support.walls import Sandbox, order_for

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONNECT = """
import socket, sys
s = socket.socket({family}, socket.SOCK_STREAM)
s.settimeout(3)
try:
    s.connect({address!r})
    print("connected")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


@pytest.fixture
def host_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_only_loopback_exists(attacker: Sandbox) -> None:
    ran = await attacker.sh(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /proc/net/route | tail -n +2"
    )
    assert ran.stdout == "lo\n"


async def test_loopback_works_inside(attacker: Sandbox) -> None:
    program = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
print("talked")
"""
    assert (await attacker.python(program)).stdout == "talked\n"


async def test_the_hosts_loopback_is_out_of_reach(attacker: Sandbox, host_port: int) -> None:
    with socket.create_connection(("127.0.0.1", host_port), timeout=3):
        pass
    program = CONNECT.format(family="socket.AF_INET", address=("127.0.0.1", host_port))
    assert (await attacker.python(program)).stdout == "ConnectionRefusedError 111\n"


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "192.168.0.1", "1.1.1.1"])
async def test_no_address_is_routed(attacker: Sandbox, address: str) -> None:
    program = CONNECT.format(family="socket.AF_INET", address=(address, 80))
    assert (await attacker.python(program)).stdout == "OSError 101\n"


async def test_no_address_of_version_6_is_routed(attacker: Sandbox) -> None:
    program = CONNECT.format(family="socket.AF_INET6", address=("fd00:ec2::254", 80))
    assert (await attacker.python(program)).stdout.startswith("OSError")


async def test_abstract_sockets_of_the_host_are_out_of_reach(attacker: Sandbox) -> None:
    name = f"\0walls-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
        program = CONNECT.format(family="socket.AF_UNIX", address=name)
        assert (await attacker.python(program)).stdout == "ConnectionRefusedError 111\n"


async def test_abstract_sockets_of_a_neighbour_are_out_of_reach(
    attacker: Sandbox, neighbour: Sandbox
) -> None:
    # The parent ends once the socket listens; the child keeps it.
    serve = """
import os, signal, socket
server = socket.socket(socket.AF_UNIX)
server.bind("\\0next-door")
server.listen()
if os.fork() == 0:
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.pause()
"""
    await neighbour.python(serve)
    mine = CONNECT.format(family="socket.AF_UNIX", address="\0next-door")
    assert (await neighbour.python(mine)).stdout == "connected\n"
    assert (await attacker.python(mine)).stdout == "ConnectionRefusedError 111\n"


async def test_no_interface_can_be_made(attacker: Sandbox) -> None:
    program = """
import fcntl, socket, struct
s = socket.socket()
try:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0, b""))
    print("changed")
except OSError as error:
    print(error.errno)
"""
    refusal = "25\n" if attacker.has_own_kernel else "1\n"
    assert (await attacker.python(program)).stdout == refusal


@pytest_asyncio.fixture(loop_scope="session")
async def led(backend: NamespacesBackend) -> AsyncIterator[Sandbox]:
    """One with a way out, which nobody serves yet."""
    order = replace(order_for(), trust=Trust.SEMI)
    yield Sandbox(backend, await backend.provision(order), order)
    await backend.teardown(order.sandbox_id)


FAR = """
import socket
try:
    with socket.create_connection(("93.184.216.34", 8443), 10) as line:
        print(line.recv(9).decode())
except OSError as error:
    print(type(error).__name__)
"""


async def test_a_way_out_that_nobody_serves_sends_callers_away_at_once(led: Sandbox) -> None:
    assert (await led.python(FAR)).stdout == "ConnectionResetError\n"
    guest = await led.guest()
    assert isinstance(guest, Relays)
    await (await guest.listen(WAY_OUT_PORT)).close()
    await guest.unlisten(WAY_OUT_PORT)
    assert (await led.python(FAR)).stdout == "ConnectionResetError\n"


async def test_the_host_is_asked_for_a_connection_as_by_a_program_that_knows_the_proxy(led: Sandbox) -> None:
    guest = await led.guest()
    assert isinstance(guest, Relays)
    relay = await guest.listen(WAY_OUT_PORT)
    await led.sh(f"setsid python3 -c '{FAR.replace(chr(39), chr(34))}' > /tmp/said 2>&1 &")
    stream = await relay.accept(await relay.next_call())
    assert isinstance(stream, HandsOver)
    handed = stream.hand_over()
    handed.sock.setblocking(True)
    handed.sock.settimeout(30)
    asked = handed.received
    while not asked.endswith(b"\r\n\r\n"):
        asked += handed.sock.recv(1000)
    assert asked == b"CONNECT 93.184.216.34:8443 HTTP/1.1\r\nHost: 93.184.216.34:8443\r\n\r\n"
    # In pieces, and with what follows: only the answer is taken out.
    for piece in (b"HTTP/1.1 2", b"00 OK\r\n\r", b"\nhello"):
        handed.sock.sendall(piece)
    said = await led.sh("until grep -q . /tmp/said; do sleep 0.01; done; cat /tmp/said")
    assert said.stdout == "hello\n"
    handed.sock.close()
    handed.closed()
    await relay.close()


async def test_the_address_of_a_sandbox_is_its_own_alone(
    led: Sandbox, backend: NamespacesBackend, host_port: int
) -> None:
    order = replace(order_for(), trust=Trust.SEMI)
    other = Sandbox(backend, await backend.provision(order), order)
    try:
        serve = "setsid python3 -m http.server 9999 >/dev/null 2>&1 & "
        near = CONNECT.format(family="socket.AF_INET", address=("198.18.0.1", 9999))
        ready = (
            "until python3 -c 'import socket; socket.create_connection((\"198.18.0.1\", 9999))'; do :; done"
        )
        await other.sh(serve + ready + " 2>/dev/null")
        assert (await other.python(near)).stdout == "connected\n"
        assert (await led.python(near)).stdout == "ConnectionRefusedError 111\n"
    finally:
        await backend.teardown(order.sandbox_id)
    own = CONNECT.format(family="socket.AF_INET", address=("127.0.0.1", host_port))
    assert (await led.python(own)).stdout == "ConnectionRefusedError 111\n"


async def test_a_disk_that_names_no_server_for_names_is_given_one_and_another_stays(
    led: Sandbox, backend: NamespacesBackend
) -> None:
    look = "cat /etc/resolv.conf"
    assert (await led.sh(f"{look}; rm /etc/resolv.conf")).stdout == "nameserver 198.18.0.1\n"
    for wanted in ("nameserver 198.18.0.1\n", "nameserver 9.9.9.9\n"):
        await backend.stop(led.handle)
        led.handle = await backend.resume(led.handle, led.order)
        assert (await led.sh(look)).stdout == wanted
        await led.sh("echo nameserver 9.9.9.9 > /etc/resolv.conf")


async def test_a_kernel_that_cannot_lead_connections_is_named(tmp_path: Path) -> None:
    unable = tmp_path / "launcher"
    unable.write_text("#!/bin/sh\necho 'launcher: steering: Invalid argument' >&2; exit 1\n")
    unable.chmod(0o755)
    assert [one.what for one in steering_lacks(unable)] == ["programs that ignore proxy variables"]
    assert "Invalid argument" in steering_lacks(unable)[0].why
