"""Network: `lo` and nothing else. What there is to reach is reached from the host first."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator

import pytest

from tests.support.walls import Sandbox

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
    assert (await attacker.python(program)).stdout == "1\n"
