"""The client against a supervisor that lies: each case ends in a typed error, soon, with little memory."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxer.backends.guest import Command, Exit
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.backends.supervisor.codec import Frame, Tag, field, frame, text, u32, u64
from sandboxer.backends.supervisor.line import Gate, dial
from sandboxer.kernel.errors import BackendLost, GuestMisbehaved, NoCapacity, SandboxerError
from tests.support.guest import eventually

WELCOME = frame(Frame.WELCOME, u32(Tag.VERSION, 1))
STARTED = frame(Frame.STARTED, u32(Tag.PID, 7))
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def liar(behaviour: Behaviour) -> AsyncIterator[SupervisorGuest]:
    with tempfile.TemporaryDirectory() as home:
        path = str(Path(home) / "socket")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await behaviour(reader, writer)
            except ConnectionError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_unix_server(serve, path)
        try:
            yield SupervisorGuest(path, answer_s=0.3, work_s=0.3)
        finally:
            server.close()


def says(*parts: bytes, then_waits: bool = False) -> Behaviour:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        if then_waits:
            await reader.read(-1)

    return behave


async def list_files(guest: SupervisorGuest) -> None:
    [info async for info in guest.files.list("/")]


async def read_file(guest: SupervisorGuest) -> None:
    [piece async for piece in guest.files.read("/x", length=10)]


async def run(guest: SupervisorGuest) -> None:
    async with await guest.run(Command(argv=["true"])) as process:
        [item async for item in process.output()]


OPERATIONS: list[Callable[[SupervisorGuest], Awaitable[object]]] = [
    lambda guest: guest.ping(),
    lambda guest: guest.processes(),
    lambda guest: guest.connect(80),
    lambda guest: guest.files.stat("/"),
    lambda guest: guest.files.remove("/x"),
    list_files,
    read_file,
    run,
]

LIES = {
    "nothing": [],
    "text": [b"HTTP/1.1 200 OK\r\n\r\n"],
    "a huge length": [WELCOME, struct.pack("<IB", 0xFFFFFFFF, Frame.DONE)],
    "a length just too large": [WELCOME, struct.pack("<IB", 256 * 1024 + 1, Frame.STDOUT)],
    "half a frame": [WELCOME, STARTED[:7]],
    "no welcome": [STARTED, frame(Frame.EXIT, u32(Tag.CODE, 0))],
    "a version nobody offered": [frame(Frame.WELCOME, u32(Tag.VERSION, 9)), STARTED],
    "a welcome without version": [frame(Frame.WELCOME), STARTED],
    "a frame of another kind": [WELCOME, frame(Frame.EVENTS)],
    "an unknown frame": [WELCOME, frame(Frame.PING)],
    "a field longer than its frame": [WELCOME, frame(Frame.ERROR, b"\x3c\x00\xff\x00\x00\x00")],
    "an error without a number": [WELCOME, frame(Frame.ERROR, u32(Tag.STAGE, 1))],
    "an error number of the wrong size": [WELCOME, frame(Frame.ERROR, field(Tag.ERRNO, b"12345"))],
    "a stage nobody knows, and then nothing": [WELCOME, frame(Frame.ENTRIES, field(Tag.ENTRY, b"\x01"))],
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_is_a_typed_error(
    lie: str, operation: Callable[[SupervisorGuest], Awaitable[object]]
) -> None:
    async with liar(says(*LIES[lie])) as guest, asyncio.timeout(2):
        with pytest.raises((GuestMisbehaved, BackendLost)):
            await operation(guest)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_silence_ends_after_the_time_limit(
    operation: Callable[[SupervisorGuest], Awaitable[object]],
) -> None:
    async with liar(says(then_waits=True)) as guest, asyncio.timeout(2):
        with pytest.raises(BackendLost):
            await operation(guest)


@pytest.mark.parametrize(
    "lie",
    [
        frame(Frame.EXIT, u32(Tag.CODE, 256)),
        frame(Frame.EXIT, u32(Tag.SIGNAL, 65)),
        frame(Frame.EXIT),
        frame(Frame.DROPPED, u32(Tag.STREAM, 2) + u64(Tag.COUNT, 1)),
        frame(Frame.STARTED, u32(Tag.PID, 7)),
    ],
)
async def test_lies_in_the_output_of_a_process_are_found(lie: bytes) -> None:
    async with liar(says(WELCOME, STARTED, frame(Frame.STDOUT, b"x"), lie)) as guest:
        with pytest.raises(GuestMisbehaved):
            await run(guest)


async def test_a_number_beyond_any_pid_is_a_lie() -> None:
    async with liar(says(WELCOME, frame(Frame.STARTED, u32(Tag.PID, 0xFFFFFFFF)))) as guest:
        with pytest.raises(GuestMisbehaved):
            await run(guest)


async def test_a_file_that_gives_more_than_was_asked_for_is_a_lie() -> None:
    info = text(Tag.PATH, "/x") + u32(Tag.KIND, 1) + u64(Tag.SIZE, 1) + u32(Tag.MODE, 0)
    info += u32(Tag.UID, 0) + u32(Tag.GID, 0) + u64(Tag.MTIME, 0)
    async with liar(says(WELCOME, frame(Frame.FILE, info), frame(Frame.DATA, bytes(11)))) as guest:
        with pytest.raises(GuestMisbehaved):
            await read_file(guest)


async def test_an_endless_list_of_processes_is_cut_off() -> None:
    entry = (
        text(Tag.ID, "x") + u32(Tag.PID, 1) + text(Tag.TAG, "") + u64(Tag.STARTED_AT, 1) + u32(Tag.FLAGS, 0)
    )
    async with liar(says(WELCOME, frame(Frame.PROCESS, entry) * 5000)) as guest:
        with pytest.raises(GuestMisbehaved):
            await guest.processes()


async def test_a_guest_that_floods_is_read_no_faster_than_its_reader() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(WELCOME + STARTED)
        while sent < 1 << 30:
            writer.write(frame(Frame.STDOUT, bytes(1 << 18)))
            await writer.drain()
            sent += 1 << 18

    async with liar(flood) as guest, await guest.run(Command(argv=["true"])) as process:
        output = process.output()
        await anext(aiter(output))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 8 << 20


async def test_descriptors_from_the_guest_are_not_taken() -> None:
    with tempfile.TemporaryDirectory() as home, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(home) / "socket")
        listener.bind(path)
        listener.listen()
        before = len(os.listdir("/proc/self/fd"))
        guest = SupervisorGuest(path)
        async with asyncio.TaskGroup() as group:
            ping = group.create_task(guest.ping())
            sock, _ = await asyncio.to_thread(listener.accept)
            with sock:
                socket.send_fds(sock, [WELCOME + frame(Frame.DONE)], [0, 0, 0, 0, 0])
                await ping
        assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_socket_that_is_not_there_is_a_lost_backend() -> None:
    with pytest.raises(BackendLost):
        await SupervisorGuest("/nowhere/socket").ping()


async def test_random_answers_never_raise_anything_else() -> None:
    dice = random.Random(7)
    answers = [
        WELCOME,
        STARTED,
        frame(Frame.EXIT, u32(Tag.CODE, 0)),
        frame(Frame.DONE),
        frame(Frame.STDOUT, b"x"),
    ]
    answers += [
        frame(Frame.ERROR, u32(Tag.ERRNO, 2) + u32(Tag.STAGE, 11)),
        frame(Frame.ENTRIES, field(Tag.ENTRY, b"")),
    ]
    current = b""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(current)
        await writer.drain()

    async with liar(behave) as guest:
        for _ in range(400):
            data = bytearray(WELCOME + b"".join(dice.choices(answers, k=3)))
            for _ in range(dice.randint(0, 3)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            current = bytes(data)
            try:
                await dice.choice(OPERATIONS)(guest)
            except SandboxerError:
                continue


async def test_an_honest_answer_is_understood_in_any_cut() -> None:
    whole = (
        WELCOME
        + STARTED
        + frame(Frame.STDOUT, b"hello")
        + frame(Frame.STDERR, b"")
        + frame(Frame.EXIT, u32(Tag.CODE, 3))
    )

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in whole:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with liar(dribble) as guest, await guest.run(Command(argv=["true"])) as process:
        items = [item async for item in process.output()]
    assert b"".join(item.data for item in items if not isinstance(item, Exit)) == b"hello"
    assert items[-1] == Exit(code=3)


async def test_a_host_without_descriptors_says_so_and_counts_no_line_as_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    gate = Gate(1)
    guest = SupervisorGuest("/nowhere", gate=gate)
    with monkeypatch.context() as broken:
        broken.setattr("sandboxer.backends.supervisor.line.socket.socket", refuse)
        for _ in range(2):
            with pytest.raises(NoCapacity, match="Too many open files"):
                await guest.ping()
    with pytest.raises(BackendLost):
        await guest.ping()


async def test_a_hundred_lines_that_nobody_reads_hold_no_more_than_one_sandbox_may(tmp_path: Path) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WELCOME)
        while True:
            writer.write(frame(Frame.STDOUT, b"x" * 65_536))
            await writer.drain()

    path, gate = str(tmp_path / "socket"), Gate(100)
    async with await asyncio.start_unix_server(flood, path):
        lines = [await dial(path, b"", gate=gate) for _ in range(100)]

        async def all_wait() -> bool:
            return not any(line._reading for line in lines)

        await eventually(all_wait, within_s=30)
        # A line that is alone reads ahead a megabyte; a hundred did so too.
        assert sum(line._queued for line in lines) < 16 * 1024 * 1024
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "lie",
    [
        frame(Frame.ANNOUNCE, u32(Tag.PORT, 4000) + u64(Tag.CALL, 1)),
        frame(Frame.ANNOUNCE, u32(Tag.PORT, 3128)),
        frame(Frame.ANNOUNCE, u32(Tag.PORT, 3128) + u32(Tag.CALL, 1)),
        frame(Frame.DONE),
        frame(Frame.DATA, b"bytes"),
        struct.pack("<IB", 1 << 30, Frame.ANNOUNCE),
    ],
)
async def test_lies_about_calls_to_a_relayed_port_are_found(lie: bytes) -> None:
    async with liar(says(WELCOME, frame(Frame.DONE), lie, then_waits=True)) as guest:
        relay = await guest.listen(3128)
        with pytest.raises(GuestMisbehaved):
            await asyncio.wait_for(relay.next_call(), 5)
        await relay.close()
