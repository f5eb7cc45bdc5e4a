"""Caddy in front of ports, with its own authority: HTTP/2, WebSockets, events, and whose names it takes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import websockets

from sandboxer.edges.proxy.caddy import EdgePlan, running_edge
from tests.support.access import Proxied, proxying
from tests.support.caddy import free_port, why_no_caddy
from tests.support.http.served import Served

pytestmark = pytest.mark.skipif(bool(why_no_caddy()), reason=why_no_caddy() or "")


@dataclass
class Edge:
    proxied: Proxied
    port: int
    authority: Path

    async def curl(self, host: str, target: str, *more: str) -> tuple[int, str]:
        words = ["curl", "-sS", "--max-time", "20", "--cacert", str(self.authority), *more]
        words += ["--resolve", f"{host}:{self.port}:127.0.0.1", f"https://{host}:{self.port}{target}"]
        asking = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await asking.communicate()
        return asking.returncode or 0, said.decode()


@pytest.fixture
async def edge(real: Served, tmp_path: Path) -> AsyncIterator[Edge]:
    port = free_port()
    async with proxying(real) as proxied:
        plan = EdgePlan(
            site="localhost",
            domain=real.platform.settings.proxy_domain,
            api=real.url.removeprefix("http://"),
            ports=f"127.0.0.1:{proxied.port}",
            https_port=port,
            internal=True,
            storage=tmp_path / "store",
            is_supervised=True,
        )
        async with running_edge(plan, tmp_path):
            made = Edge(proxied, port, tmp_path / "store/pki/authorities/local/root.crt")
            deadline = time.monotonic() + 30
            while (await made.curl("localhost", "/health"))[0]:
                assert time.monotonic() < deadline, (tmp_path / "caddy.log").read_text()[-2000:]
            yield made


async def test_a_browser_sees_http2_websockets_and_events_through_caddy(edge: Edge) -> None:
    path = await edge.proxied.website()
    await edge.proxied.preview(path, public=True)
    host = edge.proxied.host(path)
    code, said = await edge.curl(host, "/a?b=1", "--http2", "-w", "\n%{http_version}")
    assert code == 0, said
    assert said.endswith("\n2")
    assert '"path": "/a?b=1"' in said
    trust = ssl.create_default_context(cafile=str(edge.authority))
    sock = socket.create_connection(("127.0.0.1", edge.port))
    sock.setblocking(False)
    async with websockets.connect(f"wss://{host}/", sock=sock, ssl=trust, server_hostname=host) as line:
        await line.send("through")
        assert await line.recv() == "echo through"
    began = time.monotonic()
    streaming = await asyncio.create_subprocess_exec(
        *("curl", "-sSN", "--cacert", str(edge.authority), "--resolve", f"{host}:{edge.port}:127.0.0.1"),
        f"https://{host}:{edge.port}/stream",
        stdout=asyncio.subprocess.PIPE,
    )
    assert streaming.stdout is not None
    assert await streaming.stdout.readline() == b"data: 0\n"
    first = time.monotonic() - began
    rest = await streaming.stdout.read()
    assert rest.endswith(b"data: 2\n\n")
    assert time.monotonic() - began - first > 0.3
    await streaming.wait()


async def test_certificates_are_made_for_our_names_only(edge: Edge) -> None:
    path = await edge.proxied.served.sandbox()
    ours = edge.proxied.host(path)
    assert (await edge.curl(ours, "/"))[0] == 0
    for name in ("example.com", f"3000-sbx-{'0' * 26}.box.test", "shop.box.test"):
        code, said = await edge.curl(name, "/")
        assert code == 35, (name, said)
    async with httpx.AsyncClient(base_url=edge.proxied.served.url) as http:
        assert (await http.get("/v1/edge/ask", params={"domain": ours})).status_code == 200
        assert (await http.get("/v1/edge/ask", params={"domain": "example.com"})).status_code == 404
    # Through the edge nobody asks for others, and nobody reads metrics.
    assert "404" in (await edge.curl("localhost", "/v1/edge/ask?domain=x", "-w", "%{http_code}"))[1]
    assert "404" in (await edge.curl("localhost", "/metrics", "-w", "%{http_code}"))[1]
