"""A platform on the scripted fake, served over real HTTP on a free loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from sandboxer.backends.contract import Backend
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.http.app import create_app
from sandboxer.edges.http.server import Server, config, listen, open_ports
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.support.http.flows import note_answers
from tests.support.http.signed import Client, Credentials


@dataclass
class Served:
    platform: Platform
    app: Starlette
    backend: Any
    url: str
    client: Client
    state_dir: Path
    # What `sandbox` asks for unless the test says otherwise.
    defaults: dict[str, object] = field(default_factory=dict)

    @property
    def owner(self) -> Credentials:
        known = json.loads((self.state_dir / "owner.json").read_text())
        return Credentials(known["public_key"], known["secret_key"])

    def as_(self, credentials: Credentials) -> Client:
        return Client(self.client.http, credentials)

    async def sandbox(self, **wanted: object) -> str:
        """The path of a fresh one."""
        answer = await self.client.post("/v1/sandboxes", {**self.defaults, **wanted})
        assert answer.status_code == 201, answer.text
        return f"/v1/sandboxes/{answer.json()['id']}"

    async def stranger(self, account: str = "stranger") -> Client:
        answer = await self.client.post("/v1/keys", {"name": "k", "account": account})
        assert answer.status_code == 201, answer.text
        return self.as_(Credentials(answer.json()["public_key"], answer.json()["secret_key"]))


async def eventually(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    """Until it is so, or the deadline passes; what it waits for happens in another task or process."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(settings: Settings, backends: dict[str, Backend] | None) -> AsyncIterator[Served]:
    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    if settings.public_url is None:
        # Wallets sign for the address at which they ask.
        settings = settings.model_copy(update={"public_url": url})
    async with contextlib.AsyncExitStack() as opened:
        platform = await opened.enter_async_context(open_platform(settings, backends=backends))
        _, ports = await open_ports(platform, opened)
        app = create_app(platform)
        up = asyncio.Event()
        server = Server(config(app, settings, ports=ports), up.set)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(server.serve(sockets=[listening]))
            await up.wait()
            async with httpx.AsyncClient(base_url=url, timeout=30.0) as http:
                client = Client(http, Credentials("", ""))
                served = Served(
                    platform, app, (backends or {}).get("ext.namespaces"), url, client, settings.state_dir
                )
                client.credentials = served.owner
                yield served
            server.should_exit = True
            server.force_exit = True
            await task
        note_answers(
            {
                (sample.labels["method"], sample.labels["route"], int(sample.labels["status"]))
                for metric in platform.metrics.requests.collect()
                for sample in metric.samples
                if sample.name.endswith("_total")
            }
        )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # Tests of limits and of charging set their own.
    return Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        limit_auth=10_000,
        limit_bucket_only=10_000,
        charging=False,
    )


@pytest.fixture
async def served(settings: Settings) -> AsyncIterator[Served]:
    backend = Scripted(name="ext.namespaces")
    async with serving(settings, {"ext.namespaces": backend}) as running:
        yield running
