"""Where a supervisor cannot be handed a socket, who dials its port says the secret first, or is sent away."""

from __future__ import annotations

import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.backends.supervisor.codec import HELLO, Frame, frame
from sandboxer.kernel.errors import BackendLost

SECRET = secrets.token_bytes(32)
PING = HELLO + frame(Frame.PING, b"")


@pytest.fixture
def port(supervisor: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        number = int(found.getsockname()[1])
    argv = [str(supervisor), f"port={number}", "-1", "0"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(SECRET)
        process.stdin.close()
        # It says so when it listens, and nothing else ever.
        assert process.stdout.read() == b"1"
        yield number
        process.kill()


def answer_to(port: int, *parts: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        # A door that closes at once may be gone before all was said.
        with suppress(OSError):
            for part in parts:
                line.sendall(part)
            line.shutdown(socket.SHUT_WR)
        said = b""
        try:
            while piece := line.recv(4096):
                said += piece
        except ConnectionResetError:
            pass
        return said


async def test_who_says_the_secret_first_is_answered(port: int) -> None:
    async def enter() -> socket.socket:
        line = socket.create_connection(("127.0.0.1", port))
        line.sendall(SECRET)
        line.setblocking(False)
        return line

    await SupervisorGuest(enter).ping()


def test_a_secret_that_comes_in_pieces_is_the_secret(port: int) -> None:
    assert answer_to(port, SECRET[:5], SECRET[5:] + PING[:3], PING[3:])


@pytest.mark.parametrize(
    "begins",
    [b"", PING, bytes(32) + PING, SECRET[:-1] + bytes([SECRET[-1] ^ 1]) + PING, b"\xff" * 65536],
    # Drawn by chance: no process would call them alike.
    ids=["nothing", "no secret", "zeros", "one bit wrong", "much"],
)
def test_who_begins_otherwise_hears_nothing(port: int, begins: bytes) -> None:
    assert answer_to(port, begins) == b""
    assert answer_to(port, SECRET + PING)


async def test_a_door_that_leads_nowhere_is_a_sandbox_that_does_not_answer() -> None:
    async def enter() -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(BackendLost):
        await SupervisorGuest(enter).ping()
