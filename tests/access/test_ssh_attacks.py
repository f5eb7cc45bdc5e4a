"""Clients that mean harm, before and after they said who they are; what they fill, from inside."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest
from asyncssh.packet import Boolean, String, UInt32

from sandboxer.backends.limited import LimitedGuest
from sandboxer.edges.ssh.channels import MAX_SAID, MAX_VARIABLES, MAX_WAITING, BoundedChannel, Session, unread
from sandboxer.edges.ssh.dependencies import BURST, PROGRAM, STEPS_PER_S, Bounds, Crowd, RateLimit
from sandboxer.edges.ssh.gateway import Door
from sandboxer.edges.ssh.sftp import MAX_OPEN
from sandboxer.edges.ssh.uploads import MAX_PIECES
from tests.support.http.real import why_not
from tests.support.http.served import eventually
from tests.support.ssh import Gated, opened

GLOBAL_REQUEST = 80
BOUNDS = Bounds(login_s=2, channels=8, channels_per_account=10, unread_bytes=3 * MAX_WAITING)
BUDGET_MB = 64
# More than any kernel buffers on the way.
A_LOT = 2**31 - 1


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Gated]:
    if why := why_not():
        pytest.skip(why)
    try:
        async with opened(tmp_path, bounds=BOUNDS, budget_mb_per_account=BUDGET_MB) as gate:
            yield gate
    finally:
        if os.path.ismount(tmp_path / "state" / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(tmp_path / "state" / "pool")], check=True)


@asynccontextmanager
async def inside(gate: Gated, path: str, key: Path) -> AsyncIterator[asyncssh.SSHClientConnection]:
    host = asyncssh.import_public_key(gate.gateway.host_key)
    async with asyncssh.connect(
        "127.0.0.1",
        gate.gateway.port,
        username=path.rsplit("/", 1)[1],
        client_keys=[str(key)],
        known_hosts=([host], [], []),
        config=None,
        agent_path=None,
    ) as conn:
        yield conn


def ours(kind: type) -> Iterator[object]:
    """What the server, in this very process, has of it."""
    return (found for found in gc.get_objects() if isinstance(found, kind))


def _doors() -> list[Door]:
    """Connections that were let in. Slow: it looks at everything."""
    return [one for one in ours(Door) if isinstance(one, Door) and one.login and one._is_counted]


async def test_who_says_nothing_or_nonsense_is_sent_away(narrow: Gated) -> None:
    for said in (b"", b"SSH-2.0-slow\r\n", b"A" * 100_000, b"SSH-2.0-big\r\n" + b"\xff" * 64):
        reader, writer = await asyncio.open_connection("127.0.0.1", narrow.gateway.port)
        with contextlib.suppress(ConnectionError):
            writer.write(said)
            async with asyncio.timeout(30):
                while await reader.read(65536):
                    pass
        writer.close()
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    assert (await narrow.ssh(key, path, "echo in")).out == b"in\n"


async def test_channels_are_bounded_for_a_connection_and_an_account(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    async with inside(narrow, path, key) as one, inside(narrow, path, key) as two:
        for conn, most in ((one, BOUNDS.channels), (two, BOUNDS.channels_per_account - BOUNDS.channels)):
            held = [await conn.create_process("cat", encoding=None) for _ in range(most)]
            for open_one in (
                conn.create_process("cat"),
                conn.open_connection("localhost", 1),
                conn.start_sftp_client(),
            ):
                with pytest.raises(asyncssh.ChannelOpenError, match="too many channels"):
                    await open_one
            if conn is two:
                # What is closed makes room.
                held[0].stdin.write_eof()
                await held[0].wait()
                assert (await conn.run("echo again")).stdout == "again\n"


async def test_what_is_said_besides_bytes_does_not_pile_up(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    async with inside(narrow, path, key) as conn:
        many = {f"LC_{n}": "x" * 100 for n in range(1000)} | {"LC_LONG": "x" * 10_000}
        sleeper = await conn.create_process("echo up; exec sleep 1000", env=many, encoding=None)
        assert await sleeper.stdout.readline() == b"up\n"
        for n in range(500):
            sleeper.change_terminal_size(80 + n % 2, 24)
        assert (await conn.run("echo alive")).stdout == "alive\n"
        assert 0 < max(_variables()) <= MAX_VARIABLES
        session = next(one for one in ours(Session) if isinstance(one, Session))
        # As if its program took nothing for a while.
        for _ in range(10_000):
            session.exception_received(asyncssh.BreakReceived(1))
        assert len(session._recv_buf[None]) <= MAX_SAID


def _variables() -> list[int]:
    return [len(one._env) for one in ours(BoundedChannel) if isinstance(one, BoundedChannel)]


@pytest.mark.slow
async def test_a_reader_that_does_not_read_fills_no_memory(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    async with inside(narrow, path, key) as conn:
        (door,) = _doors()
        theirs, ours_ = door._conn, conn._transport
        assert theirs is not None
        assert ours_ is not None
        flood = await conn.create_process("cat /dev/zero", encoding=None, window=A_LOT)
        ours_.pause_reading()
        await eventually(lambda: unread(theirs) > MAX_WAITING / 2, seconds=30)
        most = 0
        for _ in range(20):
            await asyncio.sleep(0.05)
            most = max(most, unread(theirs))
        assert most < 2 * MAX_WAITING
        assert flood.exit_status is None
        # One that asks for ever and takes no answer is not waited for.
        door._dependencies.crowd.bounds = replace(BOUNDS, unread_bytes=most + 256 * 1024)
        for _ in range(200):
            for _ in range(500):
                conn.send_packet(GLOBAL_REQUEST, String("no-such@example.com"), Boolean(True))
            await asyncio.sleep(0.01)
            if not door._is_counted:
                break
        await eventually(lambda: not door._is_counted, seconds=30)
        conn.abort()


async def test_sftp_has_bounds_of_its_own(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    async with inside(narrow, path, key) as conn:
        async with conn.start_sftp_client() as sftp:
            handler = sftp._handler
            folders = [await handler.opendir(b"/etc") for _ in range(MAX_OPEN)]
            with pytest.raises(asyncssh.SFTPFailure, match="folders are open"):
                await handler.opendir(b"/etc")
            await handler.close(folders[0])
            await handler.opendir(b"/etc")
            files = [await sftp.open("/etc/hostname", "rb") for _ in range(MAX_OPEN)]
            with pytest.raises(asyncssh.SFTPFailure, match="files are open"):
                await sftp.open("/etc/hostname", "rb")
            assert files
        # A length that no packet has ends that channel, and nothing else.
        writer, reader, _ = await conn.open_session(subsystem="sftp", encoding=None)
        writer.write(b"\xff" * 64)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        assert (await conn.run("echo alive")).stdout == "alive\n"


@pytest.mark.parametrize("packets", [20_000, 100_000])
async def test_a_stranger_who_says_nothing_thousands_of_times_does_not_stop_the_loop(
    narrow: Gated, packets: int
) -> None:
    nothing = struct.pack(">IBBI", 12, 6, 2, 0) + bytes(6)
    _, writer = await asyncio.open_connection("127.0.0.1", narrow.gateway.port)
    writer.write(b"SSH-2.0-flood\r\n" + nothing * packets)
    # Of the loop's own time: another process may have the processor meanwhile.
    longest, last = 0.0, time.thread_time()
    for _ in range(1000):
        assert (await narrow.served.client.get("/health")).status_code == 200
        longest, last = max(longest, time.thread_time() - last), time.thread_time()
        if writer.transport.get_write_buffer_size() == 0:
            break
    writer.transport.abort()
    assert longest < 0.3


STAT, REALPATH, UNKNOWN = 17, 16, 99


@pytest.mark.parametrize("asked", [STAT, REALPATH, UNKNOWN])
async def test_who_floods_sftp_and_leaves_does_not_stop_the_loop(narrow: Gated, asked: int) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    name = b"/etc/hostname"
    body = struct.pack(">BII", asked, 1, len(name)) + name
    stats = (struct.pack(">I", len(body)) + body) * 1000
    async with inside(narrow, path, key) as conn:
        writer, reader, _ = await conn.open_session(subsystem="sftp", encoding=None)
        writer.write(struct.pack(">IBI", 5, 1, 3))
        await reader.read(10)
        longest, last = 0.0, time.thread_time()
        flood = asyncio.create_task(_write_without_end(writer, stats))
        for number in range(3000):
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.thread_time() - last), time.thread_time()
            if number == 1500:
                conn.abort()
        flood.cancel()
    assert longest < 0.5


async def _write_without_end(writer: asyncssh.SSHWriter[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while True:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)


async def test_files_with_holes_are_held_within_the_accounts_budget_and_let_go_of(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    piece, held, refused = bytes(1 << 20), 0, list[str]()
    async with inside(narrow, path, key) as conn, conn.start_sftp_client() as sftp:
        for number in range(2 * BUDGET_MB // 16):
            file = await sftp.open(f"/root/{number}", "wb")
            await file.write(b"a", 0)
            for at in range(15):
                try:
                    # The bytes between are never sent.
                    await file.write(piece, 10 + at * len(piece))
                    held += len(piece)
                except asyncssh.SFTPFailure as error:
                    refused.append(str(error))
            with pytest.raises(asyncssh.SFTPFailure, match="from its beginning"):
                await file.write(piece, 0)
        assert held <= BUDGET_MB << 20
        assert refused
        assert all("64 MB" in one for one in refused)
    # All of it is given back with the connection.
    async with inside(narrow, path, key) as conn, conn.start_sftp_client() as sftp:
        async with sftp.open("/root/whole", "wb") as file:
            await file.write(piece * 20)
        assert (await sftp.stat("/root/whole")).size == 20 << 20


FSETSTAT, EXTENDED = 10, 1 << 31


async def test_what_is_said_about_a_file_on_its_way_in_does_not_pile_up(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    long_word = UInt32(EXTENDED) + UInt32(1) + String(b"a@b") + String(bytes(10_000))
    async with inside(narrow, path, key) as conn, conn.start_sftp_client() as sftp:
        file = await sftp.open("/root/much-said", "wb")
        handler, handle = sftp._handler, String(file._handle)
        before = len(list(ours(asyncssh.SFTPAttrs)))
        for _ in range(10):
            said = (handler._make_request(FSETSTAT, handle, long_word) for _ in range(50))
            await asyncio.gather(*said)
        assert len(list(ours(asyncssh.SFTPAttrs))) < before + 50
        await file.write(b"whole")
        for mode in (0o600, 0o640):
            await file.setstat(asyncssh.SFTPAttrs(permissions=mode, uid=7, gid=8))
        await file.close()
        found = await sftp.stat("/root/much-said")
        assert (found.size, (found.permissions or 0) & 0o777, found.uid, found.gid) == (5, 0o640, 7, 8)


async def test_pieces_of_nothing_ahead_of_a_gap_do_not_pile_up(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    async with inside(narrow, path, key) as conn, conn.start_sftp_client() as sftp:
        file = await sftp.open("/root/holes", "wb")
        await file.write(b"a", 0)
        handler, handle = sftp._handler, file._handle
        for at in range(MAX_PIECES):
            await handler.write(handle, 10 + at, b"")
        with pytest.raises(asyncssh.SFTPFailure, match="from its beginning"):
            await handler.write(handle, 10 + MAX_PIECES, b"")


def test_whoever_is_too_fast_waits_and_nobody_else() -> None:
    rate_limit = RateLimit()
    assert sum(rate_limit.wait_for("a", 1, 0.0) for _ in range(int(BURST))) == 0
    assert rate_limit.wait_for("a", PROGRAM, 0.0) == pytest.approx(PROGRAM / STEPS_PER_S)
    assert rate_limit.wait_for("b", PROGRAM, 0.0) == 0
    assert rate_limit.wait_for("a", 1, 10.0) == 0
    rate_limit.sweep(11.0)
    assert not rate_limit._buckets


def test_an_account_has_so_many_connections_from_wherever() -> None:
    crowd = Crowd(Bounds(per_account=2))
    for n in range(2):
        assert crowd.may_enter(f"sbx_{n}", "a")
        crowd.knocked(f"10.0.0.{n}")
        crowd.entered(f"10.0.0.{n}", f"sbx_{n}", "a")
    assert not crowd.may_enter("sbx_3", "a")
    assert crowd.may_enter("sbx_3", "b")
    crowd.left("10.0.0.0", ("sbx_0", "a"))
    assert crowd.may_enter("sbx_3", "a")
    crowd.left("10.0.0.1", ("sbx_1", "a"))
    assert [*crowd.accounts, *crowd.sandboxes, *crowd.addresses, *crowd.unknown] == []


_DEAF = """
import socket
served, kept = socket.create_server(("127.0.0.1", 8000)), []
while True:
    kept.append(served.accept())
"""


async def test_a_forward_ends_with_its_client_whoever_is_inside(
    narrow: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would count as work for ever: its sandbox would never idle, and be paid for."""
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    pulse = narrow.served.platform.sandboxes.activity.pulse(path.rsplit("/", 1)[1])
    async with inside(narrow, path, key) as conn:
        started = await narrow.served.client.post(f"{path}/processes", {"argv": ["python3", "-c", _DEAF]})
        assert started.status_code == 201, started.text
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await conn.open_connection("localhost", 8000)
                    break
                except asyncssh.ChannelOpenError:
                    await asyncio.sleep(0.05)
        writer.write(b"hello")
        assert pulse.open_lines == 1
    await eventually(lambda: pulse.open_lines == 0, 30)

    # One that is gone before it was dialled leaves nothing behind either.
    asked, may_go, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Dialled:
        async def close(self) -> None:
            closed.set()

    async def connect(self: object, port: int) -> Dialled:
        asked.set()
        await may_go.wait()
        return Dialled()

    monkeypatch.setattr(LimitedGuest, "connect", connect)
    async with inside(narrow, path, key) as conn:
        opening = asyncio.create_task(conn.open_connection("localhost", 8000))
        await asked.wait()
    await asyncio.wait((opening,))
    await eventually(lambda: not _doors(), 30)
    may_go.set()
    async with asyncio.timeout(30):
        await closed.wait()


async def test_a_command_is_hung_up_on_when_its_client_leaves(narrow: Gated) -> None:
    path, key = await narrow.served.sandbox(), narrow.new_key()
    await narrow.add(key)
    pulse = narrow.served.platform.sandboxes.activity.pulse(path.rsplit("/", 1)[1])
    async with inside(narrow, path, key) as conn:
        started = await conn.create_process("echo up; exec sleep 100000")
        assert await started.stdout.readline() == "up\n"
        assert pulse.open_lines == 1
    await eventually(lambda: pulse.open_lines == 0, 30)
    left = await narrow.served.client.post(f"{path}/exec", {"command": "pgrep -x sleep || echo none"})
    assert left.json()["stdout"] == "none\n", left.text
