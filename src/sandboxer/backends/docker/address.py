"""Says where an engine is and how it is reached: by a socket of this host, by TLS, or by SSH."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import asyncssh
import httpx

from sandboxer.kernel.errors import InvalidRequest, NotAvailable, Unavailable
from sandboxer.kernel.values import value_class

DIAL_S = 10.0
KEEPALIVE_S = 15.0
_SOCKET = "/var/run/docker.sock"
_TLS_PORT = 2376


@value_class
class Address:
    scheme: str
    # Of a socket, here or on the host that SSH leads to.
    path: str = ""
    host: str = ""
    port: int | None = None
    user: str | None = None

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}"
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def parse_address(text: str) -> Address:
    """Reads unix:///path, tcp://host[:port] or ssh://[user@]host[:port][/path]. Raises InvalidRequest."""
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = -1
    host = parts.hostname or ""
    if parts.password or parts.query or parts.fragment or port == -1:
        raise _odd(text)
    if parts.scheme == "unix" and not host and parts.path.startswith("/"):
        return Address(scheme="unix", path=parts.path)
    if parts.scheme == "tcp" and host and not parts.path.strip("/"):
        return Address(scheme="tcp", host=host, port=port or _TLS_PORT)
    if parts.scheme == "ssh" and host:
        path = parts.path if parts.path.strip("/") else _SOCKET
        return Address(scheme="ssh", host=host, port=port, user=parts.username, path=path)
    raise _odd(text)


def _odd(text: str) -> InvalidRequest:
    forms = "unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host"
    return InvalidRequest(field="docker_host", why=f"{text} is none of {forms}")


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Way(Protocol):
    """Leads to an engine."""

    # What the requests of an HTTP client begin with.
    base: str

    async def ready(self) -> None:
        """Makes the way, if it has broken. Raises Unavailable."""

    def transport(self) -> httpx.AsyncHTTPTransport: ...

    async def dial(self) -> Streams:
        """Opens one connection. Raises OSError, Unavailable."""


class SocketWay:
    base = "http://engine"

    def __init__(self, path: str) -> None:
        self._path = path

    async def ready(self) -> None:
        """A socket of this host needs nothing."""

    def transport(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(uds=self._path)

    async def dial(self) -> Streams:
        return await asyncio.open_unix_connection(self._path)


class TlsWay:
    def __init__(self, address: Address, context: ssl.SSLContext) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.base = f"https://{host}:{address.port}"
        self._address = address
        self._context = context

    async def ready(self) -> None:
        """Each connection is made by itself."""

    def transport(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._context)

    async def dial(self) -> Streams:
        return await asyncio.open_connection(self._address.host, self._address.port, ssl=self._context)


class SshWay:
    """A socket in a folder of ours, each connection to which is led to the engine's by one SSH connection."""

    base = "http://engine"

    def __init__(self, address: Address, keys: Path | None, folder: Path) -> None:
        self._address = address
        self._keys = keys
        self._socket = folder / "engine"
        self._connection: asyncssh.SSHClientConnection | None = None
        self._making = asyncio.Lock()

    async def ready(self) -> None:
        async with self._making:
            if self._connection is None or self._connection.is_closed():
                self._socket.unlink(missing_ok=True)
                self._connection = await self._connect()

    def transport(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(uds=str(self._socket))

    async def dial(self) -> Streams:
        await self.ready()
        return await asyncio.open_unix_connection(str(self._socket))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            with contextlib.suppress(asyncssh.Error, OSError):
                await self._connection.wait_closed()

    async def _connect(self) -> asyncssh.SSHClientConnection:
        given: dict[str, object] = {"keepalive_interval": KEEPALIVE_S, "connect_timeout": DIAL_S}
        if self._keys is not None:
            known = str(self._keys / "known_hosts")
            given |= {"client_keys": [str(self._keys / "key")], "known_hosts": known, "config": None}
        if self._address.user is not None:
            given["username"] = self._address.user
        try:
            connection = await asyncssh.connect(self._address.host, self._address.port or (), **given)
            try:
                await connection.forward_local_path(str(self._socket), self._address.path)
            except BaseException:
                connection.close()
                raise
        except (asyncssh.Error, OSError, ValueError) as error:
            raise Unavailable(why=f"the engine's host {self._address} cannot be reached: {error}") from error
        return connection


@asynccontextmanager
async def _by_ssh(address: Address, keys: Path | None) -> AsyncIterator[Way]:
    # Not in the state folder: a socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sandboxer-ssh-") as folder:
        way = SshWay(address, keys, Path(folder))
        try:
            yield way
        finally:
            await way.close()


def open_way(address: Address, keys: Path | None) -> AbstractAsyncContextManager[Way]:
    """Opens the way to an engine.

    `keys` is a folder: ca.pem, cert.pem and key.pem for TLS; key and known_hosts for SSH, where without it
    the user's own are taken. Raises NotAvailable.
    """
    if address.scheme == "unix":
        return contextlib.nullcontext(SocketWay(address.path))
    if address.scheme == "tcp":
        return contextlib.nullcontext(TlsWay(address, _tls(keys)))
    return _by_ssh(address, keys)


def _tls(keys: Path | None) -> ssl.SSLContext:
    if keys is None:
        # Whoever reaches an engine is root on its host.
        raise NotAvailable(
            what="ext.docker", why="an engine by tcp:// needs docker_keys: nothing goes there in clear"
        )
    try:
        context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    except OSError as error:
        raise NotAvailable(
            what="ext.docker", why=f"{keys} does not hold ca.pem, cert.pem and key.pem: {error}"
        ) from error
    return context
