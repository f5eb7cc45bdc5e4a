"""A world without a world: this thread's own network namespace, and behind a cable another one: the internet.

Nothing leaves the two, and the proxy needs no switch to be tested: its addresses look public.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CLONE_NEWNET = 0x40000000
# Of sites far away.
ADDRESS, OTHER, ADDRESS_6 = "93.184.215.14", "151.101.1.69", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
# Of this host, on the interface that leads there.
OWN, OWN_6 = "185.199.108.153", "2606:50c0:8000::153"
# A private network nearby, and a cloud's metadata: there to be reached by mistake.
_FAR = (f"{ADDRESS}/32", f"{OTHER}/32", f"{ADDRESS_6}/128 nodad", "10.1.2.3/32", "169.254.169.254/32")
_NEAR = (f"{OWN}/32", f"{OWN_6}/128 nodad")
_libc = ctypes.CDLL(None, use_errno=True)
_far: list[int] = []


@contextmanager
def public_world() -> Iterator[None]:
    """This thread lives there until the block ends; its children are born there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    far = -1
    try:
        far = _new_namespace()
        near = _new_namespace()
        try:
            cable = f"link add out type veth peer name far netns /proc/{os.getpid()}/fd/{far}"
            ip(cable, *_wired("out", _NEAR))
            with _inside(far):
                ip(*_wired("far", _FAR))
            _far.append(far)
            yield
        finally:
            os.close(near)
            if far in _far:
                _far.remove(far)
            _enter(home)
    finally:
        os.close(home)
        if far >= 0:
            os.close(far)


def _wired(name: str, addresses: Sequence[str]) -> list[str]:
    return [
        *(f"addr add dev {name} {address}" for address in addresses),
        "link set lo up",
        f"link set {name} up",
        f"route add 0.0.0.0/0 dev {name}",
        f"route add ::/0 dev {name}",
    ]


def _new_namespace() -> int:
    if _libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def _inside(namespace: int) -> Iterator[None]:
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _enter(namespace)
    try:
        yield
    finally:
        _enter(here)
        os.close(here)


@contextmanager
def far_away() -> Iterator[None]:
    """This thread lives where the sites are until the block ends; its children are born there."""
    with _inside(_far[-1]):
        yield


def ip(*lines: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def listening(address: str, port: int) -> socket.socket:
    """Far away, unless the address is this host's own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if address in (OWN, OWN_6, "127.0.0.1"):
        return socket.create_server((address, port), family=family)
    with _inside(_far[-1]):
        return socket.create_server((address, port), family=family)


class Names:
    """A resolver of our own making; each answer is taken from the list in turn, the last one for ever."""

    def __init__(self, **known: str | Sequence[str]) -> None:
        self._known: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        for name, address in known.items():
            self.set(name.replace("_", "."), address if isinstance(address, str) else list(address))

    def set(self, name: str, *answers: str | list[str]) -> None:
        self._known[name] = [[one] if isinstance(one, str) else one for one in answers]

    async def addresses(self, host: str, *, owner: str) -> Sequence[str]:
        self.asked.append(host)
        answers = self._known.get(host)
        if answers is None:
            return ()
        return answers.pop(0) if len(answers) > 1 else answers[0]


@dataclass
class Site:
    """What somebody out there was asked."""

    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    # Sent to everybody; None: nothing, ever.
    answer: bytes | None = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    endless: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(head := await reader.readuntil(b"\r\n\r\n"))
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if length:
                self.bodies.append(await reader.readexactly(int(length[0].split(b":")[1])))
            if self.answer is None:
                await reader.read()
                return
            writer.write(self.answer)
            while self.endless:
                writer.write(b"x" * 1000)
                await writer.drain()
                await asyncio.sleep(0.01)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site(
    address: str = ADDRESS, port: int = 80, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, sock=listening(address, port), ssl=tls)
    try:
        yield made
    finally:
        server.close()


def certified(folder: Path, *names: str) -> ssl.SSLContext:
    """TLS for these names, signed by an authority whose certificate is `folder/ca.pem`."""
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem"), "-days", "2"]
    run += ["-subj", "/CN=test", "-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)]
    subprocess.run(run, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context
