"""Secrets injected at egress."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxer.settings import Settings
from tests.support.http.real import GUEST, IMAGES, sh, why_not
from tests.support.http.served import Served, serving


def here(tmp_path: Path, **more: Any) -> Settings:
    return Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        guest_dir=GUEST,
        pool_size_mb=800,
        **more,
    )


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Served]:
    async with serving(settings, None) as running:
        running.defaults = {"resources": {"disk_mb": 64}}
        yield running


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[Path]:
    if why := why_not():
        pytest.skip(why)
    yield tmp_path
    async with opened(here(tmp_path)) as served:
        for sandbox in (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
            await served.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    if os.path.ismount(tmp_path / "state" / "pool"):
        await asyncio.to_thread(subprocess.run, ["umount", str(tmp_path / "state" / "pool")], check=True)


async def inject(served: Served, path: str, **body: object) -> list[dict[str, object]]:
    answer = await served.client.send("PUT", f"{path}/secrets", body=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["secrets"]
    return found


async def out(served: Served, path: str, command: str) -> str:
    return str((await sh(served, path, command))["stdout"])
