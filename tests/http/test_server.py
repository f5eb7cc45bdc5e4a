"""The server as a process: it starts, answers, and ends well."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from sandboxer.edges.http.server import listen, url_of
from sandboxer.settings import Settings
from tests.support.http.signed import Client, Credentials

PROGRAM = """
import json
import sys
from pathlib import Path
from sandboxer.edges.http.server import run
from sandboxer.settings import Settings
state, profiles = map(Path, sys.argv[1:3])
more = json.loads(sys.argv[3])
settings = Settings(state_dir=state, port=0, profiles_dir=profiles, backends=("ext.scripted",), **more)
loaded = lambda: {name.partition(".")[0] for name in sys.modules}
run(settings, on_ready=lambda at: print(at.api, *loaded(), flush=True))
"""


# What each of them takes to import, only those platforms pay that use it.
LIBRARIES_OF_NETWORKS = {
    "web3",
    "eth_account",
    "eth_utils",
    "py_ecc",
    "aiohttp",
    "x402",
    "embit",
    "segno",
    "bip322",
}
LIBRARIES_OF_NETWORKS |= {"coincurve", "pyseto", "Cryptodome", "asyncssh", "psycopg"}
NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})
# Nobody answers there: what is looked at is what a server with such a network has loaded.
WITH_EVM = {
    "charging": True,
    "fixed_rates": {"BTC": "100000", "USDC": "1"},
    "x402": {
        "networks": [
            {
                "network": "eip155:8453",
                "pay_to": "0x" + "11" * 20,
                "rpc_url": "http://127.0.0.1:9",
                "facilitator": "http://127.0.0.1:9",
                "assets": [{"code": "USDC", "id": "0x" + "22" * 20, "name": "USD Coin", "version": "2"}],
            }
        ]
    },
}


def profiles_for_the_fake(folder: Path) -> Path:
    folder.mkdir()
    shipped = Settings().profiles_dir / "agent-dev.yaml"
    (folder / "agent-dev.yaml").write_text(shipped.read_text().replace("ext.namespaces", "ext.scripted"))
    return folder


@contextlib.asynccontextmanager
async def running(
    folder: Path, more: Mapping[str, Any] = NOTHING_MORE
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, set[str]]]:
    """A server as a process of its own, its address, and the packages it has loaded when it is ready."""
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(folder / "state"),
        str(profiles_for_the_fake(folder / "profiles")),
        json.dumps(dict(more)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    try:
        url, *loaded = (await asyncio.wait_for(server.stdout.readline(), 120)).decode().split()
        yield server, url, set(loaded)
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def test_a_platform_without_payments_does_not_load_the_libraries_of_networks(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, _, loaded):
        assert not loaded & LIBRARIES_OF_NETWORKS
        assert "fastapi" in loaded


@pytest.mark.parametrize("more", [NOTHING_MORE, WITH_EVM], ids=["without payments", "with an EVM network"])
async def test_nobody_ends_it_by_what_he_nests(tmp_path: Path, more: Mapping[str, Any]) -> None:
    """100 KB of brackets ran over the end of the stack and took the process with them."""
    async with (
        running(tmp_path, more) as (server, url, loaded),
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        owner = json.loads((tmp_path / "state" / "owner.json").read_text())
        client = Credentials(owner["public_key"], owner["secret_key"])
        for body in (b"[" * 200_000, b'{"a":' * 200_000, b"[" * 100_000 + b"]" * 100_000):
            for path in ("/v1/sandboxes", "/v1/auth/challenge"):
                signature = client.head("POST", path, hashlib.sha256(body).hexdigest())
                head = {"content-type": "application/json", **(signature if path == "/v1/sandboxes" else {})}
                answer = await http.post(path, content=body, headers=head)
                assert 400 <= answer.status_code < 500, answer.text
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        assert server.returncode is None
        assert ("py_ecc" in loaded) == bool(more)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_at_a_signal_even_while_someone_listens(tmp_path: Path, number: signal.Signals) -> None:
    async with running(tmp_path) as (server, url, _):
        owner_file = tmp_path / "state" / "owner.json"
        owner = json.loads(owner_file.read_text())
        assert stat.S_IMODE(os.stat(owner_file).st_mode) == 0o600
        assert owner["url"] == url
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            client = Client(http, Credentials(owner["public_key"], owner["secret_key"]))
            assert (await http.get("/readyz")).json() == {"status": "ready"}
            made = await client.post("/v1/sandboxes", {})
            assert made.status_code == 201, made.text
            path = made.headers["location"]
            events = client.events("GET", f"{path}/events")
            await anext(events)
            began = time.monotonic()
            server.send_signal(number)
            out, errors = await asyncio.wait_for(server.communicate(), 30)
            assert time.monotonic() - began < 15
            await events.aclose()
        assert server.returncode == 0, errors.decode()
        assert owner["secret_key"].encode() not in out + errors


def test_a_taken_port_is_refused_before_anything_is_opened() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("box", "http://box:1"),
    ],
)
def test_the_address_is_one_that_can_be_dialled(host: str, url: str) -> None:
    assert url_of(host, 1) == url
