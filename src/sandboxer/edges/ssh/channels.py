"""Channels of an SSH connection, with limits where the library has none.

A window limits bytes. It does not limit variables, window sizes, signals and breaks: a client that sends them
faster than a program reads would fill our memory.

`Intake` handles what a connection sends in turns. Forwards are streams between a client and a port or socket
inside; the host's own network is never dialled.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import cast

import asyncssh
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

# How many messages may be waiting.
MAX_SAID = 64
MAX_VARIABLES = 64
MAX_VARIABLE_BYTES = 4096
# How many bytes may wait for a client that does not read.
MAX_WAITING = 4 * 1024 * 1024
_LOOK_S = 0.01
# Where a connection's intake is found among its extra information.
INTAKE = "sandboxer_intake"
# How much the library gets at once, and for how long before others have their turn.
PIECE, TURN_S = 4096, 0.0005
_PACKET = 32768
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PIECE = 65536
# The longest path that the address of a unix socket can hold.
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
        # Legacy scp runs the sandbox's own program.
        super().__init__(run, sftp, 3, allow_scp=False)
        self._closed = closed
        self._said = 0

    def exception_received(self, exc: Exception) -> None:
        if self._said < MAX_SAID:
            self._said += 1
            super().exception_received(exc)

    def heard(self) -> None:
        """Counts a message that was handled."""
        self._said -= 1

    def tell(self, words: str) -> None:
        """Writes to stderr, if anybody is there to read it."""
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
    """Gives others a turn before each packet, whatever it asks for."""

    async def readexactly(self, n: int) -> bytes:
        await asyncio.sleep(0)
        return await super().readexactly(n)


def bounded_channel(conn: asyncssh.SSHServerConnection, window: int) -> BoundedChannel:
    """Returns a channel of bytes without a line editor, which is the business of the terminal's kernel."""
    loop = asyncio.get_running_loop()
    return BoundedChannel(conn, loop, True, False, False, 0, 0, None, "strict", window, _PACKET)


def unread(conn: SSHConnection) -> int:
    """Returns how many bytes wait for a client that does not read, below every channel.

    The client itself announces its window: one that announces gigabytes and reads nothing would have them in
    our memory.
    """
    intake: Intake = conn.get_extra_info(INTAKE)
    return intake.unread()


async def breathe(conn: SSHConnection) -> None:
    """Waits until the client has read enough. It polls, because the library does not report when data was
    read.
    """
    while True:
        if unread(conn) <= MAX_WAITING or conn.is_closed():
            return
        await asyncio.sleep(_LOOK_S)


class _Forward:
    """Calls `closed` when a forward's channel has ended."""

    def __init__(self, carry: Carrying, closed: Callable[[], None]) -> None:
        super().__init__(carry)  # type: ignore[call-arg]
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()
        super().connection_lost(exc)  # type: ignore[misc]


class _ToPort(_Forward, SSHTCPStreamSession[bytes]):
    pass


class _ToSocket(_Forward, SSHUNIXStreamSession[bytes]):
    pass


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
    """Connects before the client is told that the channel is open, so that a refusal is reported as one."""
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
        # Nobody is left to use the connection.
        await inside.close()
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "the client is gone")

    async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        with login.dependencies.platform.sandboxes.activity.working(login.sandbox_id):
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
            # Either end went away; the close below ends the other.
            pass

    try:
        async with asyncio.TaskGroup() as group:
            carrying = group.create_task(both_ways())
            # A client that hangs up looks like one that stopped sending; the program inside might wait for
            # ever.
            gone = group.create_task(writer.channel.wait_closed())
            await asyncio.wait((carrying, gone), return_when=asyncio.FIRST_COMPLETED)
            carrying.cancel()
            gone.cancel()
    finally:
        await inside.close()
        writer.close()


class Intake(asyncio.Protocol):
    """Stands between a connection's transport and the library, and passes on a little at a time.

    The library handles everything that came in one go, and each packet takes longer the more there are: a
    stranger who floods it with empty ones stopped everybody for seconds. Here its work gets turns on the loop
    like other work for that account or address, and the connection is not read meanwhile.
    """

    def __init__(self, conn: SSHConnection, front: Front) -> None:
        self._conn = conn
        self._front = front
        # Set by the door when the connection gets its place.
        self.slot: Slot | None = None
        self._transport: asyncio.Transport | None = None
        self._left = bytearray()
        self._is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A loop's own kind of transport need not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._conn.set_extra_info(**{INTAKE: self})
        self._conn.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._left.clear()
        self._conn.connection_lost(exc)

    def eof_received(self) -> None:
        self._conn.eof_received()

    def data_received(self, data: bytes) -> None:
        self._left += data
        if not self._is_waiting:
            self._go_on()

    def unread(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _go_on(self) -> None:
        began = time.monotonic()
        while self._left and time.monotonic() - began < TURN_S:
            piece = bytes(self._left[:PIECE])
            del self._left[:PIECE]
            self._conn.data_received(piece)
        if self._transport is None or self._conn.is_closed() or self._transport.is_closing():
            self._left.clear()
            return
        wait_s = self._front.spend(self.slot, time.monotonic() - began)
        if self._left or wait_s:
            self._transport.pause_reading()
            self._is_waiting = True
            asyncio.get_running_loop().call_later(wait_s, self._again)

    def _again(self) -> None:
        self._is_waiting = False
        if self._transport is not None:
            self._transport.resume_reading()
            self._go_on()


class Listener:
    """This is what `asyncssh.listen` takes as its `tunnel`: it accepts on a socket of ours and puts an intake
    in front of each connection. The library offers no other public way to a connection's transport.
    """

    def __init__(self, listening: socket.socket, front: Front) -> None:
        self._listening = listening
        self._front = front

    async def create_server(
        self, session_factory: Callable[[str, int], object], listen_host: str, listen_port: int
    ) -> asyncssh.SSHListener:
        del listen_host, listen_port

        def accept() -> Intake:
            return Intake(cast(SSHConnection, session_factory("", 0)), self._front)

        server = await asyncio.get_running_loop().create_server(accept, sock=self._listening)
        # The library closes it and waits for that, nothing more.
        return cast(asyncssh.SSHListener, server)
