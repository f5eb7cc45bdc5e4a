"""A network for a build, from which only the package mirrors can be reached.

Packages bring scripts that run as root while they are installed. They run in a network namespace that has
nothing but a loopback. A proxy of ours listens on it (its socket is made there and served from here) and
dials the mirrors that /etc/apt names and nothing else: not this host's services, not a metadata address.
"""

from __future__ import annotations

import ctypes
import fcntl
import http.client
import os
import selectors
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Self
from urllib.parse import urlsplit

from sandboxer.artifacts.images.recipe import Mirrors
from sandboxer.backends.shared import held
from sandboxer.kernel.errors import ImageBuildFailed
from sandboxer.kernel.values import brief_value_class

# A host and a port.
Place = tuple[str, int]
_BLOCK = 64 * 1024
_TIMEOUT_S = 60.0
# Headers that concern one connection only (RFC 9110 7.6.1).
_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade")
)


class MirrorProxy:
    """The proxy through which a build fetches packages: plain HTTP and CONNECT, to a few named places only.

    It serves a listening socket until the block ends, and closes it. `allowed` maps each place that may be
    reached to the proxy in front of it, or None if it is reached directly.
    """

    def __init__(self, listening: socket.socket, allowed: Mapping[Place, Place | None]) -> None:
        self._server = _Server(listening, allowed)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="mirror proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    # A build that ends leaves unfinished connections, which need not be awaited.
    block_on_close = False

    def __init__(self, listening: socket.socket, allowed: Mapping[Place, Place | None]) -> None:
        super().__init__(listening.getsockname(), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.allowed = allowed

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores the error: apt hangs up whenever it likes, and reports other failures itself."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        place = (parts.hostname or "", parts.port or 80)
        if parts.scheme != "http" or place not in self.server.allowed:
            self._refuse(place)
            return
        via = self.server.allowed[place]
        target = self.path if via else parts._replace(scheme="", netloc="").geturl() or "/"
        upstream = http.client.HTTPConnection(*(via or place), timeout=_TIMEOUT_S)
        try:
            upstream.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
        except (OSError, http.client.error) as error:
            upstream.close()
            self.close_connection = True
            self.send_error(502, f"mirror not reached ({type(error).__name__})")
            return
        with closing(upstream):
            self._pass_on(answer)

    do_HEAD = do_GET

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        place = (host.strip("[]"), int(port) if port.isdecimal() else 0)
        if place not in self.server.allowed:
            self._refuse(place)
            return
        self.close_connection = True
        via = self.server.allowed[place]
        try:
            upstream = socket.create_connection(via or place, timeout=_TIMEOUT_S)
        except OSError as error:
            self.send_error(502, f"mirror not reached ({type(error).__name__})")
            return
        with upstream:
            if via:
                # The other proxy answers by itself; its answer is passed on with the rest.
                upstream.sendall(f"CONNECT {self.path} HTTP/1.1\r\nHost: {self.path}\r\n\r\n".encode())
            else:
                self.send_response(200, "Connection established")
                self.end_headers()
            _bridge(self.connection, upstream)

    def log_message(self, *_: object) -> None:
        """Logs nothing: a build reports its own progress."""

    def _refuse(self, place: Place) -> None:
        self.close_connection = True
        self.send_error(403, "not a mirror", f"{place[0]}:{place[1]} is none of the mirrors in /etc/apt")

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status, answer.reason)
        length = answer.getheader("content-length")
        for name, value in answer.getheaders():
            if name.lower() not in (*_HOP_BY_HOP, "transfer-encoding"):
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or answer.status in (204, 304)
        if length is None and not bodiless:
            # The end of the connection marks the end of the body.
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        while not bodiless and (block := answer.read(_BLOCK)):
            self.wfile.write(block)
        if length is not None and not bodiless and answer.length:
            # The body was cut short; the client must not take it for complete.
            self.close_connection = True


def _bridge(one: socket.socket, other: socket.socket) -> None:
    """Copies bytes both ways until either end closes, or nothing moved for a while."""
    with selectors.DefaultSelector() as ready:
        ready.register(one, selectors.EVENT_READ, other)
        ready.register(other, selectors.EVENT_READ, one)
        while events := ready.select(_TIMEOUT_S):
            for key, _ in events:
                block = key.fileobj.recv(_BLOCK)  # type: ignore[union-attr]
                if not block:
                    return
                key.data.sendall(block)


# This port is free in a namespace that has nothing else.
PORT = 3128
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_PORTS = {"http": 80, "https": 443}
_DIRECT = "direct"


@brief_value_class
class BuildNetwork:
    # An open descriptor of the namespace for the process that enters it.
    namespace: int
    # Options for apt inside.
    proxy: str

    def entering(self, command: Sequence[str]) -> list[str]:
        """Returns the command to run inside, in a process namespace of its own: through another process's
        /proc, a script that runs as root could enter that process's network.
        """
        enter = ["nsenter", f"--net=/proc/self/fd/{self.namespace}", "--"]
        return [*enter, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *command]


@contextmanager
def open_build_network(mirrors: Mirrors, proxies: Mapping[str, str]) -> Iterator[BuildNetwork]:
    """Opens the network. `proxies` is what the host's apt is told, by the rest of the option's name after
    `Acquire::` in lower case. Raises ImageBuildFailed.
    """
    allowed = {place: _proxy_to(place, scheme, proxies) for scheme, place in mirror_places(mirrors)}
    made: list[tuple[int, socket.socket]] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            made.append(_make())
        except OSError as error:
            failed.append(error)

    # In a thread of its own: a thread that entered the namespace could not return to the host's.
    thread = threading.Thread(target=make, name="build network")
    thread.start()
    thread.join()
    if failed:
        raise ImageBuildFailed(why=f"no network namespace can be made for the build: {failed[0]}")
    namespace, listening = made[0]
    with held(namespace), MirrorProxy(listening, allowed):
        yield BuildNetwork(namespace=namespace, proxy=f"http://127.0.0.1:{PORT}")


def mirror_places(mirrors: Mirrors) -> list[tuple[str, Place]]:
    """Returns scheme, host and port of everything that packages are fetched from."""
    found = []
    for source in mirrors.building:
        parts = urlsplit(source.uri)
        if parts.scheme in _PORTS and parts.hostname:
            found.append((parts.scheme, (parts.hostname, parts.port or _PORTS[parts.scheme])))
    return list(dict.fromkeys(found))


def _proxy_to(place: Place, scheme: str, proxies: Mapping[str, str]) -> Place | None:
    """Returns the proxy of the host's apt that leads to this mirror, or None if it is reached directly."""
    named = proxies.get(f"{scheme}::proxy::{place[0]}") or proxies.get(f"{scheme}::proxy")
    if scheme == "https" and named is None:
        named = proxies.get("http::proxy")
    if not named or named.lower() == _DIRECT:
        return None
    parts = urlsplit(named)
    if parts.scheme != "http" or not parts.hostname or parts.username:
        raise ImageBuildFailed(
            why="apt's proxy is no plain http:// one; a build cannot go through it: set Acquire::http::Proxy"
        )
    return parts.hostname, parts.port or 80


def _make() -> tuple[int, socket.socket]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(listening, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(listening, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        listening.bind(("127.0.0.1", PORT))
        listening.listen(64)
        return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY), listening
    except OSError:
        listening.close()
        raise
