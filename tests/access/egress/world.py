"""A world without a world: a network namespace whose only interface has public-looking addresses.

Nothing leaves it, and the proxy needs no switch to be tested: the addresses are public to whoever looks.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CLONE_NEWNET = 0x40000000
ADDRESS, OTHER = "93.184.215.14", "151.101.1.69"
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def public_world() -> Iterator[None]:
    """This thread lives there until the block ends; its children are born there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if _libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            for words in (
                "link set lo up",
                f"addr add {ADDRESS}/32 dev lo",
                f"addr add {OTHER}/32 dev lo",
                # A private network nearby, and a cloud's metadata: there to be reached by mistake.
                "addr add 10.1.2.3/32 dev lo",
                "addr add 169.254.169.254/32 dev lo",
            ):
                subprocess.run(["ip", *words.split()], check=True)
            yield
        finally:
            if _libc.setns(home, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(home)


class Names:
    """A resolver of our own making; each answer is taken from the list in turn, the last one for ever."""

    def __init__(self, **known: str | Sequence[str]) -> None:
        self._known: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        for name, address in known.items():
            self.set(name.replace("_", "."), address if isinstance(address, str) else list(address))

    def set(self, name: str, *answers: str | list[str]) -> None:
        self._known[name] = [[one] if isinstance(one, str) else one for one in answers]

    async def addresses(self, host: str) -> Sequence[str]:
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
    server = await asyncio.start_server(made.serve, address, port, ssl=tls)
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
