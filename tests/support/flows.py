"""A platform on real walls with room for images, and commands that must answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.settings import Settings
from tests.support.http.real import GUEST, IMAGES, on_real_walls, why_not
from tests.support.http.served import Served
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
    async with on_real_walls(settings) as running:
        yield running


async def sh_as(client: Client, sandbox_id: str, script: str) -> str:
    answer = await client.post(f"/v1/sandboxes/{sandbox_id}/exec", {"argv": ["/bin/sh", "-c", script]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"])
