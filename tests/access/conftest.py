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

from sandboxer.access.front.patience import Patience
from sandboxer.edges.http.server import listen
from sandboxer.edges.proxy.client import House
from sandboxer.edges.proxy.listener import listen_for_hosts, open_house
from sandboxer.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.test_real import IMAGES, why_not

DOMAIN = "box.test"
HTTP_SERVER = Path(__file__).with_name("inside.py")


@dataclass
class Proxied:
    served: Served
    house: House
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

    async def raw(self, data: bytes, *, until: bytes | None = None, seconds: float = 10.0) -> bytes:
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
        open_house(served.platform, patience=patience) as house,
        listen_for_hosts(served.platform, house, listening),
    ):
        yield Proxied(served, house, listening.getsockname()[1])


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
