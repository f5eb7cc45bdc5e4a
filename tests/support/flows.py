"""A platform on real walls with room for images, and commands that must answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.settings import Settings
from tests.support.http.real import GUEST, IMAGES, why_not
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client


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
        guest_dir=GUEST,
        pool_size_mb=1200,
        charging=False,
    )
    try:
        async with serving(settings, None) as running:
            running.defaults = {"resources": {"disk_mb": 64}}
            yield running
            for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def sh_as(client: Client, sandbox_id: str, script: str) -> str:
    answer = await client.post(f"/v1/sandboxes/{sandbox_id}/exec", {"argv": ["/bin/sh", "-c", script]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"])
