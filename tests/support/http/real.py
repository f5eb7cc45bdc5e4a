"""A platform on real walls, served over HTTP."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxer.settings import Settings
from tests.support.http.served import Served, serving

IMAGES = Settings().images_dir


GUEST = Settings().guest_dir


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "real walls need root"
    if not (IMAGES / "base" / "image.json").is_file():
        return f"there is no base image in {IMAGES}: run `sandboxer image build base`"
    if not (GUEST / "supervisor").is_file():
        return f"the supervisor is not built in {GUEST}: run `make -C guest`"
    return None


@asynccontextmanager
async def on_real_walls(
    settings: Settings, *, disk_mb: int = 64, **defaults: object
) -> AsyncIterator[Served]:
    """Serves a platform; afterwards its sandboxes are destroyed and its pool is unmounted. `defaults`: what
    its sandboxes are made with besides.
    """
    pools = (settings.state_dir / "pool", settings.state_dir / "oci" / "pool")
    try:
        async with serving(settings, None) as running:
            running.defaults = {"resources": {"disk_mb": disk_mb}, **defaults}
            try:
                yield running
            finally:
                for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        for pool in filter(os.path.ismount, pools):
            await asyncio.to_thread(subprocess.run, ["umount", str(pool)], check=True)
        # All of a run together would fill a disk.
        pool.with_suffix(".btrfs").unlink(missing_ok=True)


def settings_on_walls(state: Path, *, charging: bool) -> Settings:
    if why := why_not():
        pytest.skip(why)
    return Settings(
        state_dir=state, host="127.0.0.1", port=0, images_dir=IMAGES, pool_size_mb=800, charging=charging
    )


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Served]:
    async with on_real_walls(settings_on_walls(tmp_path / "state", charging=True), disk_mb=128) as running:
        yield running


@pytest.fixture
async def free(tmp_path: Path) -> AsyncIterator[Served]:
    """One that charges nothing."""
    async with on_real_walls(settings_on_walls(tmp_path / "state", charging=False), disk_mb=128) as running:
        yield running


async def sh(served: Served, path: str, command: str, **more: object) -> dict[str, object]:
    answer = await served.client.post(f"{path}/exec", {"command": command, **more})
    assert answer.status_code == 200, answer.text
    result: dict[str, object] = answer.json()
    return result
