"""Whatever comes over a connection, PID 1 lives, serves others, and keeps neither memory nor descriptors."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct

import pytest

from sandboxer.backends.guest import Command
from sandboxer.backends.supervisor.client import run_request
from sandboxer.backends.supervisor.codec import HELLO, Flag, Frame, Tag, frame, text, u32, u64
from sandboxer.kernel.errors import GuestRefused
from tests.support.guest import Box, collect, eventually, no_workers

# Never aimed at anything but /mnt: the files of the box.
REQUESTS = [
    frame(Frame.PING),
    run_request(Command(argv=["true"], env={"A": "b"}, tag="t"), "prc_fuzz", Flag.FORGET),
    frame(Frame.ATTACH, text(Tag.ID, "prc_fuzz") + u64(Tag.FROM_STDOUT, 5)),
    frame(Frame.LIST),
    frame(Frame.SIGNAL, text(Tag.ID, "prc_fuzz") + u32(Tag.SIGNAL, 9)),
    frame(Frame.FORGET, text(Tag.ID, "prc_fuzz")),
    frame(Frame.STDIN, b"abc") + frame(Frame.STDIN_EOF),
    frame(Frame.STAT, text(Tag.PATH, "/mnt") + u32(Tag.FLAGS, Flag.FOLLOW)),
    frame(Frame.LISTDIR, text(Tag.PATH, "/mnt") + u32(Tag.DEPTH, 3)),
    frame(Frame.READ, text(Tag.PATH, "/mnt/file") + u64(Tag.OFFSET, 1) + u64(Tag.LENGTH, 9)),
    frame(Frame.WRITE, text(Tag.PATH, "/mnt/file")) + frame(Frame.DATA, b"xyz") + frame(Frame.COMMIT),
    frame(Frame.MKDIR, text(Tag.PATH, "/mnt/a/b") + u32(Tag.FLAGS, Flag.PARENTS)),
    frame(Frame.WATCH, text(Tag.PATH, "/mnt") + u32(Tag.FLAGS, Flag.RECURSIVE)),
    frame(Frame.CONNECT, u32(Tag.PORT, 80)),
    frame(Frame.LISTEN, u32(Tag.PORT, 3128)),
    frame(Frame.LISTEN, u32(Tag.PORT, 3129)) + frame(Frame.PING) + frame(Frame.LIST),
    frame(Frame.ACCEPT, u64(Tag.CALL, 1)),
    frame(Frame.UNLISTEN, u32(Tag.PORT, 3128)),
]


def dial(box: Box) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(box.socket_path)
    sock.settimeout(5)
    return sock


def is_closed(sock: socket.socket) -> bool:
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 5,
        struct.pack("<IB", 256 * 1024 + 1, Frame.HELLO),
        frame(Frame.PING),
        HELLO + HELLO,
        HELLO + frame(Frame.RUN, b"\x0b\x00\xff\xff\xff\xff"),
        HELLO + frame(Frame.RUN, b"\x0b"),
    ],
)
async def test_a_connection_that_breaks_the_protocol_is_closed(box: Box, garbage: bytes) -> None:
    with dial(box) as sock:
        sock.sendall(garbage)
        assert is_closed(sock)
    await box.guest.ping()


async def test_an_unknown_request_and_unknown_fields_are_for_a_newer_guest(box: Box) -> None:
    with dial(box) as sock:
        of_the_future = struct.pack("<HI", 0x7777, 3) + b"abc"
        sock.sendall(HELLO + frame(Frame.PING, of_the_future) + struct.pack("<IB", 0, 0x7F))
        answer = b""
        while answer.count(bytes([Frame.ERROR])) < 1:
            answer += sock.recv(4096)
        assert bytes([Frame.DONE]) in answer
        sock.sendall(frame(Frame.PING))
        assert sock.recv(4096) == frame(Frame.DONE)


async def test_a_newer_host_is_answered_with_our_version_and_an_impossible_one_refused(box: Box) -> None:
    with dial(box) as sock:
        sock.sendall(frame(Frame.HELLO, u32(Tag.VERSION, 99) + u32(Tag.OLDEST, 1)))
        assert sock.recv(4096)[4] == Frame.WELCOME
    with dial(box) as sock:
        sock.sendall(frame(Frame.HELLO, u32(Tag.VERSION, 99) + u32(Tag.OLDEST, 98)))
        assert sock.recv(4096)[4] == Frame.ERROR


def mutate(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(5):
            case 0 if at < len(changed):
                changed[at] = dice.randrange(256)
            case 1 if at < len(changed):
                changed[at] ^= 1 << dice.randrange(8)
            case 2:
                del changed[at : at + dice.randint(1, 9)]
            case 3:
                changed[at:at] = dice.randbytes(dice.randint(1, 20))
            case _:
                changed[at:at] = changed[max(0, at - 12) : at]
        if not changed:
            return b""
    return bytes(changed)


async def test_random_mutations_of_every_request_leave_it_alive_and_lean(box: Box) -> None:
    (box.root / "file").write_text("content")
    dice = random.Random(20261115)
    for _ in range(3000):
        parts = [HELLO if dice.random() < 0.95 else mutate(dice, HELLO)]
        for _ in range(dice.randint(1, 3)):
            request = dice.choice(REQUESTS)
            parts.append(mutate(dice, request) if dice.random() < 0.8 else request)
        with dial(box) as sock:
            try:
                sock.sendall(b"".join(parts))
                if dice.random() < 0.2:
                    sock.settimeout(0.002)
                    sock.recv(65536)
            except (TimeoutError, ConnectionError):
                continue
    await no_workers(box)
    ran = await box.run("echo", "alive")
    assert ran.stdout == b"alive\n"
    assert box.memory_kb("Anonymous") < 2048

    async def only_its_own_fds() -> bool:
        return len(os.listdir(f"/proc/{box.pid}/fd")) < 20

    await eventually(only_its_own_fds)


def descriptors(box: Box) -> int:
    return len(os.listdir(f"/proc/{box.pid}/fd"))


async def descriptors_at_rest(box: Box) -> int:
    """Once the number has stood still: the connection of the last call is being closed when it returns."""
    counts = [descriptors(box)]

    async def stands_still() -> bool:
        counts.append(descriptors(box))
        return len(counts) >= 10 and len(set(counts[-10:])) == 1

    await eventually(stands_still)
    return counts[-1]


async def test_descriptors_that_nobody_asked_for_are_closed(box: Box) -> None:
    await box.guest.ping()
    before = await descriptors_at_rest(box)
    with dial(box) as sock:
        socket.send_fds(sock, [HELLO[:1]], [0, 0, 0])
        sock.sendall(HELLO[1:] + frame(Frame.PING))
        assert sock.recv(4096)
        # The connection, and the one descriptor a request of it could still claim.
        assert descriptors(box) == before + 2

    async def all_closed() -> bool:
        return descriptors(box) == before

    await eventually(all_closed)


async def test_too_many_connections_are_refused_and_the_others_served(box: Box) -> None:
    socks = [dial(box) for _ in range(256)]
    try:
        for sock in socks:
            sock.sendall(HELLO + frame(Frame.PING))
            assert sock.recv(4096)
        with pytest.raises(GuestRefused) as caught:
            await box.guest.ping()
        assert caught.value.facts["errno_name"] == "EAGAIN"
    finally:
        for sock in socks:
            sock.close()

    async def is_open_again() -> bool:
        try:
            await box.guest.ping()
        except GuestRefused:
            return False
        return True

    await eventually(is_open_again)


async def test_a_request_that_comes_byte_by_byte_is_understood(box: Box) -> None:
    with dial(box) as sock:
        for byte in HELLO + run_request(Command(argv=["echo", "slow"]), "prc_slow", Flag(0)):
            sock.send(bytes([byte]))
            await asyncio.sleep(0)
        answer = b""
        while b"slow\n" not in answer:
            answer += sock.recv(4096)
    async with await box.guest.attach("prc_slow") as process:
        assert (await collect(process.output())).stdout == b"slow\n"
