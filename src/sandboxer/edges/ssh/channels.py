"""A session's channel with bounds where the library has none: what a client says besides its bytes.

Bytes are held up by their window. Variables, window sizes, signals and breaks are not: whoever sends them
faster than a program reads would fill our memory with them.

What comes by a connection is worked through in turns (`Intake`).

Forwards are streams between a client and a port or socket inside. The host's own network is never dialled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import cast

import asyncssh
from asyncssh import DataType
from asyncssh.channel import SSHChannel
from asyncssh.connection import SSHConnection
from asyncssh.packet import SSHPacket
from asyncssh.sftp import run_sftp_server
from asyncssh.stream import SSHTCPStreamSession, SSHUNIXStreamSession

from sandboxer.access.connections import Front, Slot
from sandboxer.backends.guest import Connection, Guest, Sockets
from sandboxer.edges.ssh.dependencies import Login
from sandboxer.kernel.errors import NotAvailable, SandboxerError
from sandboxer.sandboxes.use_cases.access import ActivityKind

# Said and not yet looked at.
MAX_SAID = 64
MAX_VARIABLES = 64
MAX_VARIABLE_BYTES = 4096
# What may wait for a client that does not read.
MAX_WAITING = 4 * 1024 * 1024
_LOOK_S = 0.01
# What the library is given at once, and for how long before others have their turn.
PIECE, TURN_S = 4096, 0.0005
_PACKET = 32768
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PIECE = 65536
# What an address of a unix socket can hold.
_MAX_SOCKET_PATH = 107
Carrying = Callable[["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"], Awaitable[None]]


class BoundedChannel(asyncssh.SSHServerChannel[bytes]):
    def _process_env_request(self, packet: SSHPacket) -> bool:
        name, value = packet.get_string(), packet.get_string()
        packet.check_end()
        if len(self._env) >= MAX_VARIABLES or len(name) + len(value) > MAX_VARIABLE_BYTES:
            return False
        self._env[name] = value
        return True


class Session(asyncssh.SSHServerProcess[bytes]):
    def __init__(
        self,
        run: Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]],
        sftp: Callable[[SSHChannel[bytes]], Awaitable[asyncssh.SFTPServer]],
        closed: Callable[[], None],
    ) -> None:
        # Legacy scp is the sandbox's own program.
        super().__init__(run, sftp, 3, allow_scp=False)
        self._closed = closed
        self._said = 0

    def exception_received(self, exc: Exception) -> None:
        if self._said < MAX_SAID:
            self._said += 1
            super().exception_received(exc)

    def heard(self) -> None:
        """One of them was looked at."""
        self._said -= 1

    def tell(self, words: str) -> None:
        """On stderr, if anybody is there to read it."""
        try:
            self._chan.write_stderr(words.encode("utf-8", "replace") + b"\r\n")
        except (asyncssh.Error, OSError):
            return

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    def session_started(self) -> None:
        if self._chan.get_subsystem() != "sftp":
            super().session_started()
            return
        reader, writer = _SftpReader(self, self._chan), asyncssh.SSHWriter[bytes](self, self._chan)
        handler = run_sftp_server(self._init_sftp_server(), reader, writer, self._sftp_version)
        assert self._conn is not None
        self._conn.create_task(handler, reader.logger)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()
        super().connection_lost(exc)


class _SftpReader(asyncssh.SSHReader[bytes]):
    """Others have their turn before each packet, whatever it asks for and whoever answers it."""

    async def readexactly(self, n: int) -> bytes:
        await asyncio.sleep(0)
        return await super().readexactly(n)


def bounded_channel(conn: asyncssh.SSHServerConnection, window: int) -> BoundedChannel:
    """Of bytes, and without a line editor: that is a terminal's kernel's business."""
    loop = asyncio.get_running_loop()
    return BoundedChannel(conn, loop, True, False, False, 0, 0, None, "strict", window, _PACKET)


def unread(conn: SSHConnection) -> int:
    """Bytes that wait for a client that does not read, below every channel.

    A window is the client's own word: who claims gigabytes and reads nothing would have them in our memory.
    """
    transport = conn._transport
    return 0 if transport is None else transport.get_write_buffer_size()


async def breathe(conn: SSHConnection) -> None:
    """Before there is more for it. Looked at again and again: the library tells nobody when it was read."""
    while True:
        if unread(conn) <= MAX_WAITING or conn.is_closed():
            return
        await asyncio.sleep(_LOOK_S)


class _ToPort(SSHTCPStreamSession[bytes]):
    def __init__(self, carry: Carrying, closed: Callable[[], None]) -> None:
        super().__init__(carry)
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()
        super().connection_lost(exc)


class _ToSocket(SSHUNIXStreamSession[bytes]):
    def __init__(self, carry: Carrying, closed: Callable[[], None]) -> None:
        super().__init__(carry)
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()
        super().connection_lost(exc)


async def to_port(login: Login, port: int, closed: Callable[[], None]) -> _ToPort:
    return _ToPort(await _dialled(login, lambda guest: guest.connect(port), closed), closed)


async def to_socket(login: Login, path: str, closed: Callable[[], None]) -> _ToSocket:
    def dial(guest: Guest) -> Awaitable[Connection]:
        if not isinstance(guest, Sockets):
            raise NotAvailable(what="a forward to a unix socket", why="this backend cannot reach them")
        return guest.connect_socket(path)

    return _ToSocket(await _dialled(login, dial, closed), closed)


def refuse_elsewhere(host: str, port: int) -> None:
    if host not in _LOOPBACK or not 0 < port < 65536:
        raise _prohibited(f"only localhost, the sandbox itself, can be reached, not {host[:100]}")


def refuse_no_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path or len(path.encode()) > _MAX_SOCKET_PATH:
        raise _prohibited(f"a socket is named by an absolute path of at most {_MAX_SOCKET_PATH} bytes")


def _prohibited(why: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, why)


async def _dialled(
    login: Login, dial: Callable[[Guest], Awaitable[Connection]], closed: Callable[[], None]
) -> Carrying:
    """Dialled before the client is told that it is open, so that a refusal is one."""
    try:
        await login.count()
        async with login.guest(ActivityKind.PORT) as guest:
            inside = await dial(guest)
    except SandboxerError as error:
        closed()
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
    except BaseException:
        closed()
        raise
    if login.is_over():
        # Nobody would be told that it is open, nor carry it.
        await inside.close()
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "the client is gone")

    async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        with login.dependencies.platform.sandboxes.dependencies.activity.working(login.sandbox_id):
            await _carry(inside, reader, writer)

    return carry


async def _carry(
    inside: Connection, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]
) -> None:
    async def inwards() -> None:
        while data := await reader.read(_PIECE):
            await inside.write(data)
        await inside.close_write()

    async def outwards() -> None:
        while data := await inside.read(_PIECE):
            writer.write(data)
            await writer.drain()
            await breathe(writer.channel.get_connection())
        writer.write_eof()

    async def both_ways() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(inwards())
                group.create_task(outwards())
        except* (SandboxerError, asyncssh.Error, OSError):
            # Either end went away; the other is told by the close below.
            pass

    try:
        async with asyncio.TaskGroup() as group:
            carrying = group.create_task(both_ways())
            # A client that hangs up looks as one that says no more; what is inside may wait for ever.
            gone = group.create_task(writer.channel.wait_closed())
            await asyncio.wait((carrying, gone), return_when=asyncio.FIRST_COMPLETED)
            carrying.cancel()
            gone.cancel()
    finally:
        await inside.close()
        writer.close()


class Intake:
    """Hands what came by a connection to the library a little at a time.

    The library works through all of it in one go, and takes the longer for each packet the more there are: a
    stranger who floods it with empty ones stopped everybody for seconds. Now it has its turn on the loop like
    other work for that account or address, and is read no further meanwhile.
    """

    def __init__(self, conn: SSHConnection, front: Front, slot: Slot) -> None:
        self._conn = conn
        self._front = front
        self._slot = slot
        # A loop's own kind of transport need not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, conn._transport)
        self._take = conn.data_received
        self._left = bytearray()
        self._is_waiting = False

    def begin(self) -> None:
        self._conn.data_received = self._receive  # type: ignore[method-assign]
        # Loops look a protocol's methods up when it is set.
        self._transport.set_protocol(self._conn)

    def _receive(self, data: bytes, datatype: DataType = None) -> None:
        del datatype
        self._left += data
        if not self._is_waiting:
            self._go_on()

    def _go_on(self) -> None:
        began = time.monotonic()
        while self._left and time.monotonic() - began < TURN_S:
            piece = bytes(self._left[:PIECE])
            del self._left[:PIECE]
            self._take(piece)
        if self._conn.is_closed() or self._transport.is_closing():
            self._left.clear()
            return
        wait_s = self._front.spend(self._slot, time.monotonic() - began)
        if self._left or wait_s:
            self._transport.pause_reading()
            self._is_waiting = True
            asyncio.get_running_loop().call_later(wait_s, self._again)

    def _again(self) -> None:
        self._is_waiting = False
        self._transport.resume_reading()
        self._go_on()
