"""deploy/Caddyfile in front of a server, with real TLS on loopback: what was signed arrives unchanged."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.support.caddy import CADDYFILE, Site, free_port, running_caddy, why_no_caddy

pytestmark = pytest.mark.skipif(bool(why_no_caddy()), reason=why_no_caddy() or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    inner = free_port()
    uvicorn = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parent), "upstream:app"]
    server = subprocess.Popen([*uvicorn, "--port", str(inner), "--log-level", "warning"])
    try:
        with running_caddy(tmp_path_factory.mktemp("caddy"), f"127.0.0.1:{inner}") as site:
            yield site
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    address = f"https://{site.address}"
    with httpx.Client(base_url=address, verify=site.trust(), timeout=30, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    "target",
    [
        "/v1/sandboxes?label=a%3Db&label=c&cursor=",
        "/v1/sandboxes/sbx_1/files/content?path=%2Ftmp%2Fa%20b%2Bc+d",
        "/v1/a%2Fb/%E2%82%AC/c%0Ad",
        "/v1/a//b/./c",
        "/v1/x?",
        "/v1/x?b=2&a=1&a=0#",
    ],
)
def test_path_and_query_arrive_as_they_were_signed(site: Site, target: str) -> None:
    arrived = raw_request(site, "GET", target.rstrip("#"))
    assert f'"target": "{target.rstrip("#?")}"'.encode() in arrived


def test_signed_headers_and_body_arrive_unchanged(client: httpx.Client) -> None:
    body = os.urandom(300_000)
    headers = {
        "authorization": "Bearer sbx-pk-x",
        "x-nonce": "n" * 16,
        "x-signature": "ab",
        "x-timestamp": "1",
    }
    facts = client.put("/v1/thing", content=body, headers=headers).json()
    assert facts["sha256"] == hashlib.sha256(body).hexdigest()
    assert headers.items() <= facts["headers"].items()
    assert facts["headers"]["host"] == client.base_url.netloc.decode()


def test_events_are_passed_on_one_by_one(client: httpx.Client) -> None:
    with client.stream("GET", "/drip") as answer:
        chunks = answer.iter_text()
        assert next(chunks) == "data: one\n\n"
        client.delete("/upload")  # only now is the second event sent
        assert next(chunks) == "data: two\n\n"


def test_an_upload_reaches_the_server_while_it_is_still_being_sent(client: httpx.Client) -> None:
    def body() -> Iterator[bytes]:
        yield b"x" * 65536
        assert client.get("/upload").text == "seen"
        for _ in range(32):
            yield b"x" * 1_048_576

    assert client.post("/upload", content=body()).text == str(65536 + 32 * 1_048_576)


def test_a_terminal_works_through_the_proxy(site: Site) -> None:
    with connect(f"wss://{site.address}/v1/terminal", ssl=site.trust()) as terminal:
        for message in ("text", b"\x00bytes"):
            terminal.send(message)
            assert terminal.recv(timeout=10) == message


@pytest.mark.parametrize(
    "target", ["/metrics", "/metrics/", "//metrics", "/%6detrics", "/METRICS", "/v1/../metrics"]
)
def test_metrics_stay_private_however_the_path_is_written(site: Site, target: str) -> None:
    arrived = raw_request(site, "GET", target)
    assert b"404" in arrived.split(b"\r\n", 1)[0]
    assert b"x-upstream" not in arrived.lower()


def test_the_shipped_file_is_valid_as_it_stands(tmp_path: Path) -> None:
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", CADDYFILE]
    checked = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"HOME": str(tmp_path)}
    )
    assert "Valid configuration" in checked.stdout + checked.stderr


def raw_request(site: Site, method: str, target: str) -> bytes:
    """Past every client that would tidy the path up."""
    host, port = site.address.split(":")
    request = f"{method} {target} HTTP/1.1\r\nHost: {site.address}\r\nConnection: close\r\n\r\n"
    plain = socket.create_connection((host, int(port)), 10)
    with site.trust().wrap_socket(plain, server_hostname=host) as secure:
        secure.sendall(request.encode())
        answer = b""
        while piece := secure.recv(65536):
            answer += piece
        return answer
