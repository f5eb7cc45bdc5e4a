"""A session's channel with bounds where the library has none: what a client says besides its bytes.

Bytes are held up by their window. Variables, window sizes, signals and breaks are not: whoever sends them
faster than a program reads would fill our memory with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.connection import SSHConnection
from asyncssh.packet import SSHPacket

# Said and not yet looked at.
MAX_SAID = 64
MAX_VARIABLES = 64
MAX_VARIABLE_BYTES = 4096
# What may wait for a client that does not read.
MAX_WAITING = 4 * 1024 * 1024
_LOOK_S = 0.01
_PACKET = 32768


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

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()
        super().connection_lost(exc)


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
