"""A platform that charges, and an account that pays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.settings import Settings
from tests.support.http.real import IMAGES, why_not
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client

# In msats a second: a hundred sats a second while it runs, whatever its size, so that seconds are enough.
RUNNING, FROZEN, STORED = 100_000, 20_000, 10_000


RATES = {
    "running_msats": RUNNING,
    "vcpu_msats": 0,
    "memory_gb_msats": 0,
    "disk_gb_msats": 0,
    "frozen_memory_gb_msats": 0,
    "stored_disk_gb_msats": 0,
}


@pytest.fixture
async def paid(tmp_path: Path) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    rates = {**RATES, "frozen_memory_gb_msats": FROZEN, "stored_disk_gb_msats": STORED}
    settings = Settings(
        state_dir=state,
        port=0,
        images_dir=IMAGES,
        pool_size_mb=800,
        pricing={"rates": rates},
        grace_window="1s",
        hold_slice="2s",
        limit_bucket_only=10_000,
    )
    try:
        async with serving(settings, None) as running:
            try:
                yield running
            finally:
                for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def good(client: Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = await client.send(method, path, **({} if body is None else {"body": body}))
    assert answer.status_code in (200, 201), answer.text
    reply: dict[str, Any] = answer.json()
    return reply


async def becomes(client: Client, path: str, state: str, seconds: float = 15.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (seen := await good(client, "GET", path))["state"] != state:
        assert time.monotonic() < deadline, f"it is {seen['state']}, not {state}"
        await asyncio.sleep(0.05)
    return seen


async def events_of(client: Client, path: str) -> list[dict[str, Any]]:
    return [event.data async for event in client.events("GET", f"{path}?follow=false")]
