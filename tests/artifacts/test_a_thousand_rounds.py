"""A thousand rounds: freeze and thaw lose no process, snapshot and restore no byte, neither a sat."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.money.verification import verify
from sandboxer.settings import Settings
from tests.support.http.accounts import funded
from tests.support.http.real import GUEST, IMAGES, why_not
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client

ROUNDS = int(os.environ.get("SANDBOXER_TEST_ROUNDS", "1000"))
SMALL = {"resources": {"memory_mb": 128, "disk_mb": 64}}


@pytest.fixture
async def paid(tmp_path: Path) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    settings = Settings(
        state_dir=state,
        port=0,
        images_dir=IMAGES,
        guest_dir=GUEST,
        pool_size_mb=900,
        limit_bucket_only=1_000_000,
        limit_address=1_000_000,
        pricing={"rates": {"stored_disk_gb_msats": 1000}},
        storage_deposit="1s",
    )
    try:
        async with serving(settings, None) as running:
            yield running
            for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def good(client: Client, method: str, path: str, body: object = None) -> dict[str, object]:
    answer = await client.send(method, path, **({} if body is None else {"body": body}))
    assert answer.status_code in (200, 201), answer.text
    reply: dict[str, object] = answer.json()
    return reply


async def whole_ledger(paid: Served) -> None:
    assert (await paid.platform.store.read(verify)).is_whole


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_snapshot_and_restore_lose_no_byte_and_no_sat(paid: Served) -> None:
    client = await funded(paid, "team", 1_000_000)
    path = f"/v1/sandboxes/{(await good(client, 'POST', '/v1/sandboxes', SMALL))['id']}"
    content = f"{path}/files/content?path=/root/file"
    kept: list[tuple[str, str]] = []
    for number in range(ROUNDS):
        data = os.urandom(32_768)
        assert (await client.put(content, data)).status_code == 200
        made = await good(client, "POST", f"{path}/snapshots", {})
        kept.append((str(made["id"]), hashlib.sha256(data).hexdigest()))
        # Back to the newest, or two back, after something else was written.
        assert (await client.put(content, b"lost")).status_code == 200
        wanted, digest = kept[-1] if number % 3 else kept[max(0, len(kept) - 3)]
        assert (await good(client, "POST", f"/v1/snapshots/{wanted}/restore"))["state"] == "ready"
        assert hashlib.sha256((await client.get(content)).content).hexdigest() == digest
        if len(kept) > 4:
            await good(client, "DELETE", f"/v1/snapshots/{kept.pop(0)[0]}")
    for wanted, digest in kept:
        made = await good(client, "POST", f"/v1/snapshots/{wanted}/clone", {})
        clone = made["sandboxes"][0]["id"]  # type: ignore[index]
        found = await client.get(f"/v1/sandboxes/{clone}/files/content?path=/root/file")
        assert hashlib.sha256(found.content).hexdigest() == digest
    await whole_ledger(paid)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_freeze_and_thaw_lose_no_process_and_no_sat(paid: Served) -> None:
    client = await funded(paid, "team", 1_000_000)
    path = f"/v1/sandboxes/{(await good(client, 'POST', '/v1/sandboxes', SMALL))['id']}"
    argv = ["/bin/sh", "-c", "while :; do sleep 0.05; done"]
    started = {
        (await good(client, "POST", f"{path}/processes", {"argv": argv}))["process_id"] for _ in range(5)
    }
    for _ in range(ROUNDS):
        assert (await good(client, "POST", f"{path}/freeze"))["state"] == "frozen"
        assert (await good(client, "POST", f"{path}/thaw"))["state"] == "ready"
    listed = await good(client, "GET", f"{path}/processes")
    running = {each["process_id"] for each in listed["processes"] if each["running"]}  # type: ignore[attr-defined]
    assert running == started
    await whole_ledger(paid)
