"""Reaches the SSH host of `ext.compose-ssh`: one connection for all, made when it is needed, and again when
it broke.

Its key must be the one in the file of known hosts: there is no way to accept any. Nothing of this machine's
own SSH configuration or agent is used.
"""

from __future__ import annotations

import asyncio
import select
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh

from sandboxer.kernel.errors import BackendLost, Unavailable
from sandboxer.kernel.tasks import together
from sandboxer.kernel.values import brief_value_class, value_class

CONNECT_S = 15.0
# A host that says nothing for three times as long is lost.
KEEPALIVE_S = 10
# An sshd allows ten on one connection (MaxSessions), unless it is told otherwise; one watches for deaths.
SESSIONS = 8
COMMAND_S = 120.0
# For a host to say that a channel is closed.
CLOSE_S = 5.0
_PIECE = 64 * 1024
# How long what was written before a hang-up is still sent.
_FINISH_S = 30.0


@value_class
class StackHost:
    """Says where sandboxes are made, and how that is reached."""

    address: str
    key_file: Path
    known_hosts_file: Path
    # Everything of ours there lies below.
    remote_dir: str
    user: str = "root"
    port: int = 22


@brief_value_class
class Ran:
    """Holds what a command on the host did."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def last_words(self) -> str:
        said = (self.stderr.strip() or self.stdout.strip()).decode(errors="replace")
        return said[-1000:] or f"it exited with {self.code} and said nothing"


class RemoteHost:
    def __init__(self, place: StackHost) -> None:
        self.place = place
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._sessions = asyncio.Semaphore(SESSIONS)
        self._lines: set[asyncio.Task[None]] = set()

    async def run(
        self, script: str, *words: str, stdin: bytes | asyncio.StreamReader = b"", within_s: float = COMMAND_S
    ) -> Ran:
        """Runs a shell script there; `words` are its $1, $2, … Raises Unavailable if that is not known to
        have ended.
        """
        command = shlex.join(["/bin/sh", "-c", script, "sh", *words])
        try:
            async with asyncio.timeout(within_s), self._session(command, stdin) as process:
                given = stdin if isinstance(stdin, bytes) and stdin else None
                stdout, stderr = await process.communicate(given)
        except TimeoutError:
            raise self._trouble(f"a command did not end within {within_s:g} s") from None
        except (asyncssh.Error, OSError) as error:
            raise self._trouble(f"the connection broke: {_reason(error)}") from None
        if (code := process.returncode) is None:
            raise self._trouble("the connection broke while a command ran")
        return Ran(code=code, stdout=_as_bytes(stdout), stderr=_as_bytes(stderr))

    async def lines(self, script: str, *words: str) -> AsyncIterator[str]:
        """Yields the lines that a script prints, until it ends or the connection does. The script has to end
        with its stdin, which is how it learns that nobody reads any more. Raises Unavailable.
        """
        command = shlex.join(["/bin/sh", "-c", script, "sh", *words])
        connection = await self._connected()
        try:
            async with _process(connection, command, stdin=asyncssh.PIPE, stderr=asyncssh.DEVNULL) as process:
                async for line in process.stdout:
                    yield _as_bytes(line).decode(errors="replace").strip()
        except (asyncssh.Error, OSError) as error:
            raise self._trouble(f"the connection broke: {_reason(error)}") from None

    async def dial(self, path: str) -> socket.socket:
        """Returns a socket that leads to a unix socket of the host. Raises BackendLost."""
        try:
            connection = await self._connected()
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await connection.open_unix_connection(path, encoding=None)
        except asyncssh.ChannelOpenError as error:
            raise BackendLost(why=f"its supervisor does not take calls: {error.reason}") from None
        except (asyncssh.Error, OSError, TimeoutError) as error:
            raise BackendLost(why=f"host {self.place.address}: {_reason(error)}") from None
        except Unavailable as error:
            raise BackendLost(why=str(error.facts["why"])) from None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        task = asyncio.create_task(_carry(theirs, reader, writer), name=f"line to {path}")
        self._lines.add(task)
        task.add_done_callback(self._lines.discard)
        return ours

    async def close(self) -> None:
        for task in (lines := tuple(self._lines)):
            task.cancel()
        if lines:
            await asyncio.wait(lines)
        if self._connection is not None:
            self._connection.close()
            with suppress(asyncssh.Error, OSError):
                await self._connection.wait_closed()

    @asynccontextmanager
    async def _session(
        self, command: str, stdin: bytes | asyncio.StreamReader
    ) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
        async with self._sessions:
            connection = await self._connected()
            # Of nothing that is given to it, a process would not be told the end.
            given = asyncssh.PIPE if isinstance(stdin, bytes) and stdin else stdin or asyncssh.DEVNULL
            async with _process(connection, command, stdin=given) as process:
                yield process

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> asyncssh.SSHClientConnection:
        place = self.place
        for file in (place.key_file, place.known_hosts_file):
            if not file.is_file():
                raise self._trouble(f"there is no file {file} on this machine")
        try:
            return await asyncssh.connect(
                place.address,
                place.port,
                username=place.user,
                client_keys=[str(place.key_file)],
                known_hosts=str(place.known_hosts_file),
                config=None,
                agent_path=None,
                preferred_auth="publickey",
                connect_timeout=CONNECT_S,
                login_timeout=CONNECT_S,
                keepalive_interval=KEEPALIVE_S,
            )
        except asyncssh.HostKeyNotVerifiable:
            why = f"its key is not the one in {place.known_hosts_file}"
            raise self._trouble(
                why, reason="host_key", hint="Ask its operator, and write it there."
            ) from None
        except asyncssh.PermissionDenied:
            why = f"it does not let {place.user} in by {place.key_file}"
            raise self._trouble(why, reason="key_refused") from None
        except (asyncssh.Error, OSError, TimeoutError, ValueError) as error:
            raise self._trouble(f"it cannot be reached: {_reason(error)}") from None

    def _trouble(self, why: str, **facts: str) -> Unavailable:
        return Unavailable(why=f"host {self.place.address}: {why}", **{"reason": "ssh", **facts})


@asynccontextmanager
async def _process(
    connection: asyncssh.SSHClientConnection, command: str, **given: Any
) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
    process: asyncssh.SSHClientProcess[bytes]
    process = await connection.create_process(command, encoding=None, **given)
    try:
        yield process
    finally:
        process.close()
        # A host tells that only once the command has ended, which may be never.
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait_closed(), CLOSE_S)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _as_bytes(text: str | bytes | None) -> bytes:
    return text.encode() if isinstance(text, str) else text or b""


async def _carry(
    theirs: socket.socket, far: asyncssh.SSHReader[bytes], farther: asyncssh.SSHWriter[bytes]
) -> None:
    """Carries bytes both ways until both ends are done, or the near one is gone and all it wrote is sent."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    # A stream tells that the other end will not write; only this tells that it will not read either.
    watch = select.epoll()
    watch.register(theirs.fileno(), 0)

    def hear() -> None:
        loop.remove_reader(watch.fileno())
        gone.set()

    loop.add_reader(watch.fileno(), hear)
    near, nearer = await asyncio.open_unix_connection(sock=theirs)

    sent = asyncio.Event()

    async def outwards() -> None:
        while piece := await near.read(_PIECE):
            farther.write(piece)
            await farther.drain()
        farther.write_eof()
        sent.set()

    async def inwards() -> None:
        while piece := await far.read(_PIECE):
            nearer.write(piece)
            await nearer.drain()
        nearer.write_eof()

    async def left() -> None:
        await gone.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(sent.wait(), _FINISH_S)

    works: list[asyncio.Future[Any]]
    works = [asyncio.ensure_future(together(outwards(), inwards())), asyncio.ensure_future(left())]
    try:
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for work in works:
            work.cancel()
        await asyncio.wait(works)
        # Whoever reads or writes at the near end learns of a line that broke when it is closed.
        _ = [work.exception() for work in works if not work.cancelled()]
        loop.remove_reader(watch.fileno())
        watch.close()
        farther.close()
        nearer.close()
