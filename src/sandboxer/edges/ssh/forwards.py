"""Forwards: streams between a client and a port or socket inside. The host's own network is never dialled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncssh
from asyncssh.stream import SSHTCPStreamSession, SSHUNIXStreamSession

from sandboxer.backends.guest import Connection, Guest, Sockets
from sandboxer.edges.ssh.channels import breathe
from sandboxer.edges.ssh.house import Visit
from sandboxer.kernel.errors import NotAvailable, SandboxerError
from sandboxer.sandboxes.access import ActivityKind

Carrying = Callable[["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"], Awaitable[None]]
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PIECE = 65536
# What an address of a unix socket can hold.
_MAX_SOCKET_PATH = 107


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


async def to_port(visit: Visit, port: int, closed: Callable[[], None]) -> _ToPort:
    return _ToPort(await _dialled(visit, lambda guest: guest.connect(port), closed), closed)


async def to_socket(visit: Visit, path: str, closed: Callable[[], None]) -> _ToSocket:
    def dial(guest: Guest) -> Awaitable[Connection]:
        if not isinstance(guest, Sockets):
            raise NotAvailable(what="a forward to a unix socket", why="this backend cannot reach them")
        return guest.connect_socket(path)

    return _ToSocket(await _dialled(visit, dial, closed), closed)


def refuse_elsewhere(host: str, port: int) -> None:
    if host not in _LOOPBACK or not 0 < port < 65536:
        raise _prohibited(f"only localhost, the sandbox itself, can be reached, not {host[:100]}")


def refuse_no_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path or len(path.encode()) > _MAX_SOCKET_PATH:
        raise _prohibited(f"a socket is named by an absolute path of at most {_MAX_SOCKET_PATH} bytes")


def _prohibited(why: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, why)


async def _dialled(
    visit: Visit, dial: Callable[[Guest], Awaitable[Connection]], closed: Callable[[], None]
) -> Carrying:
    """Dialled before the client is told that it is open, so that a refusal is one."""
    try:
        await visit.count()
        async with visit.guest(ActivityKind.PORT) as guest:
            inside = await dial(guest)
    except SandboxerError as error:
        closed()
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
    except BaseException:
        closed()
        raise
    if visit.is_over():
        # Nobody would be told that it is open, nor carry it.
        await inside.close()
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "the client is gone")

    async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        with visit.house.platform.sandboxes.room.activity.working(visit.sandbox_id):
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
