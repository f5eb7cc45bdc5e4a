"""Many sandboxes under one Idempotency-Key: whatever a dead server had made of them is not made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.errors import ProvisionFailed
from sandboxer.settings import Settings
from tests.support.http.served import Served, serving

HEAD = {"idempotency-key": "batch-1"}
BODY = {"count": 3, "name": "fork"}


def settings_in(folder: Path) -> Settings:
    return Settings(
        state_dir=folder,
        host="127.0.0.1",
        port=0,
        limit_auth=10_000,
        limit_bucket_only=10_000,
        charging=False,
    )


async def source_of(served: Served, noun: str) -> str:
    """Where a batch is asked for."""
    path = await served.sandbox()
    snapshot = (await served.client.post(f"{path}/snapshots", {})).json()["id"]
    if noun == "snapshots":
        return f"/v1/snapshots/{snapshot}/clone"
    made = await served.client.post("/v1/images", {"name": "one", "snapshot": snapshot})
    return f"/v1/images/{made.json()['id']}/spawn"


def die(*_: object, **__: object) -> None:
    raise RuntimeError("the server died here")


@pytest.mark.parametrize("noun", ["snapshots", "images"])
async def test_a_batch_whose_answer_was_lost_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    settings, backend = settings_in(tmp_path), Scripted(name="ext.namespaces")
    async with serving(settings, {"ext.namespaces": backend}) as served:
        where = await source_of(served, noun)
        before = set(backend.boxes)
        with monkeypatch.context() as dying:
            dying.setattr("sandboxer.store.idempotency.finish", die)
            assert (await served.client.post(where, BODY, headers=HEAD)).status_code == 500
    made = set(backend.boxes) - before
    assert len(made) == 3
    async with serving(settings, {"ext.namespaces": backend}) as served:
        for _ in range(2):
            again = await served.client.post(where, BODY, headers=HEAD)
            assert again.status_code == 201, again.text
            assert {one["id"] for one in again.json()["sandboxes"]} == made
            assert [one["name"] for one in again.json()["sandboxes"]] == ["fork-1", "fork-2", "fork-3"]
        assert set(backend.boxes) - before == made


async def test_of_a_batch_that_was_cut_off_only_what_is_missing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, backend = settings_in(tmp_path), Scripted(name="ext.namespaces")
    async with serving(settings, {"ext.namespaces": backend}) as served:
        where = await source_of(served, "snapshots")
        before = set(backend.boxes)
        backend.fail_next("provision", ProvisionFailed(why="scripted"))
        with monkeypatch.context() as dying:
            dying.setattr("sandboxer.store.idempotency.finish", die)
            assert (await served.client.post(where, BODY, headers=HEAD)).status_code == 500
    survivors = set(backend.boxes) - before
    assert len(survivors) == 2
    async with serving(settings, {"ext.namespaces": backend}) as served:
        again = await served.client.post(where, BODY, headers=HEAD)
        assert (again.status_code, again.json()["failed"]) == (201, []), again.text
        now = {one["id"] for one in again.json()["sandboxes"]}
        assert len(now) == 3
        assert survivors < now == set(backend.boxes) - before
