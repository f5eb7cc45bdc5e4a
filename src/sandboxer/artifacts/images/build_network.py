"""A network of its own for a build, from which nothing but the package mirrors can be reached.

Packages bring scripts that run as root while they are installed. They run in a network namespace with nothing
but a loopback of its own; on it listens a proxy of ours (a socket made there and served from here), which
dials the mirrors that /etc/apt names and nobody else: not this host's services, no metadata address.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxer.artifacts.images.mirror_proxy import MirrorProxy, Place
from sandboxer.artifacts.images.mirrors import Mirrors
from sandboxer.kernel.errors import ImageBuildFailed

# Free in a namespace that has nothing else.
PORT = 3128
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_PORTS = {"http": 80, "https": 443}
_DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class BuildNetwork:
    # An open descriptor of the namespace, for the process that enters it.
    namespace: int
    # For apt inside.
    proxy: str

    def entering(self, command: Sequence[str]) -> list[str]:
        """The command inside, with processes of its own too: through the /proc of another one, a script that
        runs as root could enter that one's network."""
        enter = ["nsenter", f"--net=/proc/self/fd/{self.namespace}", "--"]
        return [*enter, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *command]


@contextmanager
def open_build_network(mirrors: Mirrors, proxies: Mapping[str, str]) -> Iterator[BuildNetwork]:
    """`proxies`: what the host's apt is told, by the rest of the option's name after `Acquire::` in small
    letters. Raises ImageBuildFailed."""
    allowed = {place: _proxy_to(place, scheme, proxies) for scheme, place in mirror_places(mirrors)}
    made: list[tuple[int, socket.socket]] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            made.append(_make())
        except OSError as error:
            failed.append(error)

    # A thread of its own: a namespace once left cannot be entered again by who has no way back.
    thread = threading.Thread(target=make, name="build network")
    thread.start()
    thread.join()
    if failed:
        raise ImageBuildFailed(why=f"no network namespace can be made for the build: {failed[0]}")
    namespace, listening = made[0]
    try:
        with MirrorProxy(listening, allowed):
            yield BuildNetwork(namespace=namespace, proxy=f"http://127.0.0.1:{PORT}")
    finally:
        os.close(namespace)


def mirror_places(mirrors: Mirrors) -> list[tuple[str, Place]]:
    """Scheme, host and port of everything that packages are fetched from."""
    found = []
    for source in mirrors.building:
        parts = urlsplit(source.uri)
        if parts.scheme in _PORTS and parts.hostname:
            found.append((parts.scheme, (parts.hostname, parts.port or _PORTS[parts.scheme])))
    return list(dict.fromkeys(found))


def _proxy_to(place: Place, scheme: str, proxies: Mapping[str, str]) -> Place | None:
    """By which proxy of the host's apt this mirror is reached; None: directly."""
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
