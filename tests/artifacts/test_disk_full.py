"""A pool that is really full: what is asked of it is refused with a reason, its source comes to no harm, and
the next one works once there is room. Small pools, real walls, real bytes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.settings import Settings
from tests.artifacts.kept_audit import left_on_host
from tests.support.archives import docker_archive, file, packed
from tests.support.http.real import GUEST, IMAGES
from tests.support.http.served import Served, eventually, serving
from tests.support.real_backend import require_walls

FILE = "/root/data"
CONTENT = os.urandom(300_000)
SMALL = {"resources": {"vcpus": 1, "memory_mb": 64, "disk_mb": 48, "pids": 32}}
BALLAST = "ballast"


@pytest.fixture
async def tight(tmp_path: Path) -> AsyncIterator[Served]:
    require_walls()
    state = tmp_path / "state"
    settings = Settings.model_validate(
        {
            "state_dir": state,
            "host": "127.0.0.1",
            "port": 0,
            "images_dir": IMAGES,
            "guest_dir": GUEST,
            "pool_size_mb": 640,
            "charging": False,
        }
    )
    try:
        async with serving(settings, None) as running:
            running.defaults = SMALL
            yield running
            (state / "pool" / BALLAST).unlink(missing_ok=True)
            for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


def fill(state: Path) -> None:
    """Until nothing more goes in, as no admission would allow: someone wrote into the pool by hand."""
    with open(state / "pool" / BALLAST, "wb", buffering=0) as ballast:
        block = os.urandom(1 << 20)
        for size in (len(block), 65536, 4096):
            try:
                while True:
                    ballast.write(block[:size])
                    if ballast.tell() % (16 << 20) < size:
                        os.fsync(ballast.fileno())
            except OSError:
                continue


def make_room(state: Path) -> None:
    (state / "pool" / BALLAST).unlink()
    subprocess.run(["btrfs", "filesystem", "sync", str(state / "pool")], check=True)


def refused(answer: Any) -> None:
    """Typed, and it says what to do."""
    assert answer.status_code in (422, 503, 507, 409), answer.text
    body = answer.json()
    assert body["code"] != "broken", body
    assert body["next_step"], body


@pytest.mark.timeout(300)
async def test_a_pool_full_of_promises_refuses_and_works_again_when_something_goes(tight: Served) -> None:
    """The everyday way to be full: nothing more may be promised. Cloning, importing, volumes."""
    client, path = tight.client, await tight.sandbox()
    assert (await client.put(f"{path}/files/content?path={FILE}", CONTENT)).status_code == 200
    snapshot = (await client.post(f"{path}/snapshots", {})).json()["id"]
    room: list[str] = []
    while (answer := await client.post("/v1/volumes", {"name": f"v{len(room)}", "size_mb": 40})).is_success:
        room.append(answer.json()["id"])
    refused(answer)
    clones = await client.post(f"/v1/snapshots/{snapshot}/clone", {"count": 3, **SMALL})
    refused(clones)
    archive = docker_archive(packed(file("data", os.urandom(24 << 20))))
    refused(await client.send("POST", "/v1/images/import?name=big", content=archive))
    assert (await client.get(f"{path}/files/content?path={FILE}")).content == CONTENT
    ids = {path.rsplit("/", 1)[1]}
    assert left_on_host(tight.state_dir, ids, {snapshot, *room}) == []
    for volume in room[:3]:
        assert (await client.delete(f"/v1/volumes/{volume}")).status_code == 200
    made = await client.post(f"/v1/snapshots/{snapshot}/clone", {"count": 1, **SMALL})
    assert made.status_code == 201, made.text
    clone = f"/v1/sandboxes/{made.json()['sandboxes'][0]['id']}"
    assert (await client.get(f"{clone}/files/content?path={FILE}")).content == CONTENT
    imported = await client.send("POST", "/v1/images/import?name=big", content=archive)
    assert imported.status_code == 201, imported.text


@pytest.mark.timeout(300)
async def test_a_pool_full_of_bytes_harms_no_source(tight: Served) -> None:
    """The worst way: not a block is left, whatever was promised. Each verb works or says why not."""
    client, path = tight.client, await tight.sandbox()
    assert (await client.put(f"{path}/files/content?path={FILE}", CONTENT)).status_code == 200
    snapshot = (await client.post(f"{path}/snapshots", {})).json()["id"]
    volume = (await client.post("/v1/volumes", {"name": "disk", "size_mb": 32})).json()["id"]
    having = {"volumes": [{"volume": volume, "path": "/data"}], **SMALL}
    writer = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', having)).json()['id']}"
    await asyncio.to_thread(fill, tight.state_dir)
    asked = {
        "snapshot": await client.post(f"{path}/snapshots", {}),
        "clone": await client.post(f"/v1/snapshots/{snapshot}/clone", {"count": 2, **SMALL}),
        "publish": await client.post("/v1/images", {"name": "one", "snapshot": snapshot}),
        "import": await client.send(
            "POST",
            "/v1/images/import?name=two",
            content=docker_archive(packed(file("data", os.urandom(8 << 20)))),
        ),
    }
    for answer in asked.values():
        if not answer.is_success:
            refused(answer)
    assert not asked["import"].is_success
    wrote = await client.put(f"{writer}/files/content?path=/data/big", os.urandom(16 << 20))
    assert not wrote.is_success
    refused(wrote)
    # Whoever was there is as before.
    assert (await client.get(f"{path}/files/content?path={FILE}")).content == CONTENT
    assert (await client.get(path)).json()["state"] in ("ready", "active")
    await asyncio.to_thread(make_room, tight.state_dir)
    await eventually(lambda: os.statvfs(tight.state_dir / "pool").f_bavail > (100 << 20) // 4096, 30)
    for verb, answer in {
        "snapshot": await client.post(f"{path}/snapshots", {}),
        "clone": await client.post(f"/v1/snapshots/{snapshot}/clone", {"count": 1, **SMALL}),
        "publish": await client.post("/v1/images", {"name": "three", "snapshot": snapshot}),
        "write": await client.put(f"{writer}/files/content?path=/data/big", os.urandom(8 << 20)),
    }.items():
        assert answer.is_success, (verb, answer.text)
