"""A platform with real walls and the proxy in front of its sandboxes, on free loopback ports."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvloop

from sandboxer.access.connections import Patience
from sandboxer.edges.http.server import listen
from sandboxer.edges.proxy.client import Proxy
from sandboxer.edges.proxy.host_door import listen_for_hosts, open_proxy
from sandboxer.settings import Settings
from tests.support.http.real import IMAGES, why_not
from tests.support.http.served import Served, serving

DOMAIN = "box.test"
HTTP_SERVER = Path(__file__).parents[1] / "access" / "inside.py"


@dataclass
class Proxied:
    served: Served
    proxy: Proxy
    port: int

    def host(self, path: str, port: int = 3000) -> str:
        """The name of a port of a sandbox that is known by its path in the API."""
        return f"{port}-{path.rsplit('/', 1)[1].replace('_', '-')}.{DOMAIN}"

    async def preview(self, path: str, **wanted: object) -> dict[str, object]:
        answer = await self.served.client.post(f"{path}/previews", {"port": 3000, **wanted})
        assert answer.status_code == 201, answer.text
        made: dict[str, object] = answer.json()
        return made

    async def website(self, **wanted: object) -> str:
        """A sandbox in which `inside.py` listens on port 3000."""
        path = await self.served.sandbox(**wanted)
        await self.start_inside(path)
        return path

    async def start_inside(self, path: str) -> None:
        content = HTTP_SERVER.read_bytes()
        put = await self.served.client.send("PUT", f"{path}/files/content?path=%2Finside.py", content=content)
        assert put.status_code == 200, put.text
        argv = ["python3", "/inside.py", "3000"]
        begun = await self.served.client.post(f"{path}/processes", {"argv": argv})
        assert begun.status_code == 201, begun.text
        knock = "for i in $(seq 100); do (: </dev/tcp/127.0.0.1/3000) 2>&- && exit; sleep .05; done"
        await self.served.client.post(f"{path}/exec", {"command": knock})

    async def ask(self, host: str, target: str = "/", method: str = "GET", **more: object) -> httpx.Response:
        async with httpx.AsyncClient(timeout=20.0) as http:
            headers = {"host": host, **dict(more.pop("headers", {}) or {})}  # type: ignore[call-overload]
            return await http.request(
                method,
                f"http://127.0.0.1:{self.port}{target}",
                headers=headers,
                **more,  # type: ignore[arg-type]
            )

    async def raw(self, data: bytes, *, until: bytes | None = None, seconds: float = 60.0) -> bytes:
        """What comes back for these very bytes, up to the end or up to `until`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            got = b""
            async with asyncio.timeout(seconds):
                while until is None or until not in got:
                    piece = await reader.read(65536)
                    if not piece:
                        break
                    got += piece
            return got
        finally:
            writer.close()


@asynccontextmanager
async def proxying(served: Served, patience: Patience | None = None) -> AsyncIterator[Proxied]:
    listening: socket.socket = listen("127.0.0.1", 0)
    async with (
        open_proxy(served.platform, patience=patience) as proxy,
        listen_for_hosts(served.platform, proxy, listening),
    ):
        yield Proxied(served, proxy, listening.getsockname()[1])


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that serves: its transports differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    settings = Settings(
        state_dir=state,
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        pool_size_mb=800,
        proxy_domain=DOMAIN,
        trusted_proxies=(),
        charging=True,
    )
    try:
        # A listener with the usual patience is open already; tests use one of their own.
        async with serving(settings, None) as running:
            running.defaults = {"resources": {"disk_mb": 128}}
            try:
                yield running
            finally:
                for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


@pytest.fixture
async def proxied(real: Served) -> AsyncIterator[Proxied]:
    async with proxying(real) as running:
        yield running


def dialled(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


# Head or body, and what makes it two messages to two readers.
SMUGGLED = {
    "length beside chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "the same length twice": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"Content-Length: +5\r\n\r\nhello",
    "a hexadecimal length": b"Content-Length: 0x5\r\n\r\nhello",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "an unknown coding": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding in disguise": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding behind a vertical tab": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a folded line": b"X-A: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a folded coding": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a lone line feed": b"X-A: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a lone carriage return": b"X-A: 1\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a NUL": b"X-A: \x00\r\n\r\n",
    "a header without a name": b": chunked\r\n\r\n",
    "no colon": b"nonsense\r\n\r\n",
    "a negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk size of sixteen digits": b"Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\n\r\n",
    "a chunk size in C": b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk that is longer than it said": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n",
    "a chunk ended by a line feed": b"Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n\r\n\r\n",
    "a trailer that is none": b"Transfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
    "a second host": b"Host: example.com\r\n\r\n",
    "an expectation": b"Expect: 200-ok\r\n\r\n",
}
