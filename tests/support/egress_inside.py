"""Sandboxes whose requests leave through the egress proxy."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxer.access.egress import outlets
from sandboxer.settings import Settings
from tests.access.egress.world import Names, public_world
from tests.support.http.real import IMAGES, why_not
from tests.support.http.served import Served, serving

FETCH = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def world() -> Iterator[None]:
    with public_world():
        yield


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    known = Names(example_com="93.184.215.14", api_example_com="93.184.215.14", inside_example_com="10.1.2.3")
    monkeypatch.setattr(outlets, "SystemResolver", lambda: known)
    return known


def settings_of(state: Path) -> Settings:
    return Settings(state_dir=state, host="127.0.0.1", port=0, images_dir=IMAGES, pool_size_mb=800)


@pytest.fixture
async def served(world: None, names: Names, tmp_path: Path) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    try:
        async with serving(settings_of(state), None) as running:
            running.defaults = {"resources": {"disk_mb": 128}}
            try:
                yield running
            finally:
                for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def run(served: Served, path: str, *argv: str) -> str:
    answer = await served.client.post(f"{path}/exec", {"argv": list(argv)})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return str(body["stdout"]) + str(body["stderr"])


async def fetch(served: Served, path: str, url: str) -> str:
    return await run(served, path, "python3", "-c", FETCH, url)


async def allow(served: Served, path: str, *hosts: str, **more: object) -> None:
    rules = [{"action": "allow", "host": host} for host in hosts]
    answer = await served.client.send("PUT", f"{path}/egress", body={"rules": rules, **more})
    assert answer.status_code == 200, answer.text
