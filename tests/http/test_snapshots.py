"""Snapshots over HTTP on the scripted fake: whose they are, what they cost, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.errors import NoCapacity, ProvisionFailed
from sandboxer.settings import Settings
from tests.support.http.accounts import SCOPES, cut, funded, with_both
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually, serving
from tests.support.http.signed import Client
from tests.support.http.wallets import proof


async def write(client: Client, path: str, text: str) -> None:
    answer = await client.send("PUT", f"{path}/files/content?path=/root/file", content=text.encode())
    assert answer.status_code == 200, answer.text


async def read(client: Client, path: str) -> str:
    return (await client.get(f"{path}/files/content?path=/root/file")).text


async def taken(client: Client, path: str, **wanted: object) -> dict[str, Any]:
    answer = await client.post(f"{path}/snapshots", wanted)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/snapshots/{body['id']}"
    return body


@flow(
    "takeSnapshot",
    "listSnapshots",
    "getSnapshot",
    "changeSnapshot",
    "restoreSnapshot",
    "cloneSnapshot",
    "getSnapshotTree",
    "dropSnapshot",
)
async def test_a_snapshot_is_taken_named_found_restored_cloned_and_dropped(served: Served) -> None:
    client, path = served.client, await served.sandbox()
    await write(client, path, "old")
    one = await taken(client, path, name="one", labels={"run": "1"}, ttl="2h")
    assert (one["state"], one["content"], one["labels"]) == ("kept", "files", {"run": "1"})
    listed = (await client.get(f"/v1/snapshots?sandbox_id={path.rsplit('/', 1)[1]}")).json()["snapshots"]
    assert [each["id"] for each in listed] == [one["id"]]
    for label, count in (("run=1", 1), ("run=2", 0), ("walk=1", 0), ("run=1&label=walk=1", 0)):
        assert len((await client.get(f"/v1/snapshots?label={label}")).json()["snapshots"]) == count
    changed = await client.send("PATCH", f"/v1/snapshots/{one['id']}", body={"name": "first", "ttl": "1d"})
    assert (changed.json()["name"], changed.json()["expires_at"] > one["expires_at"]) == ("first", True)
    await write(client, path, "new")
    restored = await client.post(f"/v1/snapshots/{one['id']}/restore")
    assert (restored.status_code, restored.json()["state"]) == (200, "ready"), restored.text
    assert await read(client, path) == "old"
    made = (await client.post(f"/v1/snapshots/{one['id']}/clone", {"count": 2, "name": "fork"})).json()
    assert [each["name"] for each in made["sandboxes"]] == ["fork-1", "fork-2"]
    assert await read(client, f"/v1/sandboxes/{made['sandboxes'][1]['id']}") == "old"
    lines = (await client.get("/v1/snapshots/tree")).json()["lines"]
    assert len(lines[0]["sandbox_ids"]) == 3
    shown = (await client.get(f"/v1/snapshots/{one['id']}")).json()
    assert shown["size_is_exact"]
    for _ in range(2):
        dropped = await client.delete(f"/v1/snapshots/{one['id']}")
        assert (dropped.status_code, dropped.json()["state"]) == (200, "dropped")
    assert (await client.get("/v1/snapshots")).json()["snapshots"] == []
    assert served.backend.kept_disks == {}


async def test_a_stranger_sees_neither_a_snapshot_nor_what_it_could_make_of_it(served: Served) -> None:
    one = await taken(served.client, await served.sandbox())
    stranger = await served.stranger()
    where = f"/v1/snapshots/{one['id']}"
    for method, target in (
        ("GET", where),
        ("DELETE", where),
        ("POST", f"{where}/restore"),
        ("POST", f"{where}/lock"),
        ("POST", f"{where}/unlock"),
    ):
        assert (await stranger.send(method, target)).status_code == 404, target
    assert (await stranger.send("PATCH", where, body={"name": "mine"})).status_code == 404
    assert (await stranger.post(f"{where}/clone", {})).status_code == 404
    assert (await stranger.post("/v1/sandboxes", {"snapshot": one["id"]})).status_code == 404
    assert (await stranger.get("/v1/snapshots")).json()["snapshots"] == []
    assert (await stranger.get("/v1/snapshots/tree")).json()["lines"] == []


async def test_the_same_key_takes_one_snapshot_and_makes_one_batch_of_clones(served: Served) -> None:
    client, path = served.client, await served.sandbox()
    key = {"idempotency-key": "once"}
    first, again = [await client.post(f"{path}/snapshots", {"name": "x"}, headers=key) for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    clone = f"/v1/snapshots/{first.json()['id']}/clone"
    made, same = [await client.post(clone, {"count": 3}, headers=key) for _ in range(2)]
    assert made.json() == same.json()
    assert len((await client.get("/v1/sandboxes")).json()["sandboxes"]) == 4


async def test_a_take_that_fails_says_why_and_leaves_source_and_records_clean(served: Served) -> None:
    client, path = served.client, await served.sandbox()
    served.backend.fail_next("take", NoCapacity(resource="disk", why="the storage pool is full"))
    refused = await client.post(f"{path}/snapshots", {})
    assert (refused.status_code, refused.json()["code"]) == (503, "no_capacity")
    assert (await client.get("/v1/snapshots")).json()["snapshots"] == []
    failed = (await client.get("/v1/snapshots?state=failed")).json()["snapshots"]
    assert [each["reason"] for each in failed] == ["no_capacity"]
    assert (await client.get(path)).json()["state"] in ("ready", "active")
    await taken(client, path)


async def test_a_restore_that_cannot_start_again_leaves_it_stopped_on_the_restored_disk(
    served: Served,
) -> None:
    client, path = served.client, await served.sandbox()
    await write(client, path, "old")
    one = await taken(client, path)
    await write(client, path, "new")
    served.backend.fail_next("restart", ProvisionFailed(step="boot", why="scripted"))
    refused = await client.post(f"/v1/snapshots/{one['id']}/restore")
    assert (refused.status_code, refused.json()["code"]) == (503, "provision_failed")
    assert (await client.get(path)).json()["state"] == "stopped"
    assert (await client.post(f"{path}/resume")).status_code == 200
    assert await read(client, path) == "old"


async def test_two_restores_at_once_come_one_after_the_other(served: Served) -> None:
    client, path = served.client, await served.sandbox()
    await write(client, path, "one")
    one = await taken(client, path)
    await write(client, path, "two")
    two = await taken(client, path)
    answers = await asyncio.gather(
        *(client.post(f"/v1/snapshots/{each['id']}/restore") for each in (one, two, one, two))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert await read(client, path) in ("one", "two")
    assert (await client.get(path)).json()["state"] == "ready"


async def test_what_is_being_destroyed_is_not_taken_and_what_is_gone_not_restored(served: Served) -> None:
    client, path = served.client, await served.sandbox()
    one = await taken(client, path)
    # At the same time: either it was taken before, or it is refused for the state it is in.
    gone, late = await asyncio.gather(client.delete(path), client.post(f"{path}/snapshots", {}))
    assert gone.status_code == 200
    assert late.status_code in (201, 409), late.text
    refused = await client.post(f"{path}/snapshots", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "illegal_transition")
    refused = await client.post(f"/v1/snapshots/{one['id']}/restore")
    assert (refused.status_code, refused.json()["reason"]) == (409, "source_gone")
    assert (await client.post(f"/v1/snapshots/{one['id']}/clone", {})).status_code == 201


async def test_of_many_clones_each_is_made_or_not_by_itself(served: Served) -> None:
    one = await taken(served.client, await served.sandbox())
    served.backend.fail_next("provision", ProvisionFailed(step="disk", why="scripted"))
    made = await served.client.post(f"/v1/snapshots/{one['id']}/clone", {"count": 3})
    assert made.status_code == 201
    assert len(made.json()["sandboxes"]) == 2
    assert [each["problem"]["code"] for each in made.json()["failed"]] == ["provision_failed"]
    served.backend.fail_next("check_kept", ProvisionFailed(step="disk", why="scripted"))
    assert (await served.client.post(f"/v1/snapshots/{one['id']}/clone", {})).status_code == 503
    for count in (0, 101):
        assert (
            await served.client.post(f"/v1/snapshots/{one['id']}/clone", {"count": count})
        ).status_code == 422


@flow("lockSnapshot", "unlockSnapshot")
async def test_a_locked_snapshot_is_dropped_only_with_the_other_factor(served: Served) -> None:
    client, session = await with_both(served)
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    where = f"/v1/snapshots/{(await taken(client, path, ttl='1s'))['id']}"
    assert (await client.post(f"{where}/lock")).json()["locked_at"] is not None
    for method, target in (("DELETE", where), ("POST", f"{where}/unlock")):
        assert (await client.send(method, target)).status_code == 428
    # Its time is over, and it is still there.
    await asyncio.sleep(1.2)
    assert (await client.get(where)).json()["state"] == "kept"
    asked = (await client.post(f"{where}/unlock")).json()
    unlocked = await client.post(f"{where}/unlock", headers=proof(asked, session.signer))
    assert unlocked.json()["locked_at"] is None
    assert (await client.delete(where)).json()["state"] == "dropped"


async def test_a_locked_sandbox_is_restored_only_with_the_other_factor(served: Served) -> None:
    client, session = await with_both(served)
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    one = await taken(client, path)
    assert (await client.post(f"{path}/lock")).status_code == 200
    restore = f"/v1/snapshots/{one['id']}/restore"
    asked = await client.post(restore)
    assert asked.status_code == 428
    assert (await client.post(restore, headers=proof(asked.json(), session.signer))).status_code == 200


async def test_a_snapshot_goes_when_its_time_is_over(served: Served) -> None:
    one = await taken(served.client, await served.sandbox(), ttl="1s")
    await eventually(lambda: not served.backend.kept_disks)
    gone = (await served.client.get(f"/v1/snapshots/{one['id']}")).json()
    assert (gone["state"], gone["reason"]) in (("dropped", "expire"), ("dropping", "expire"))


# In msats a second for each GB: a snapshot of a file or two costs a sat a second.
STORED = 1_024_000


@pytest.fixture
async def paid(tmp_path: Path) -> AsyncIterator[Served]:
    rates = {"running_msats": 0, "vcpu_msats": 0, "memory_gb_msats": 0, "stored_disk_gb_msats": STORED}
    settings = Settings(
        state_dir=tmp_path / "state",
        port=0,
        pricing={"rates": rates},
        storage_deposit="1s",
        grace_window="1s",
        hold_slice="2s",
        retention="2s",
        limit_bucket_only=10_000,
        snapshots_per_account=2,
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


async def test_what_is_kept_is_paid_for_until_it_is_dropped(paid: Served) -> None:
    client = await funded(paid, "team")
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    await write(client, path, "x")
    one = await taken(client, path)
    assert one["rate_msats_per_s"] == 1000
    await asyncio.sleep(1.1)
    dropped = (await client.delete(f"/v1/snapshots/{one['id']}")).json()
    assert dropped["rate_msats_per_s"] == 0
    used = (await client.get("/v1/usage/segments")).json()["segments"]
    mine = [each for each in used if each["subject"] == one["id"]]
    assert mine
    assert {each["use"] if "use" in each else each["kind"] for each in mine} == {"stored"}


async def test_an_account_that_runs_dry_keeps_its_snapshot_for_the_retention_time(paid: Served) -> None:
    client = await funded(paid, "poor", 2)
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    await write(client, path, "x")
    where = f"/v1/snapshots/{(await taken(client, path))['id']}"
    states = []

    async def becomes(state: str) -> None:
        for _ in range(400):
            states.append((await client.get(where)).json()["state"])
            if states[-1] == state:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never {state}: {sorted(set(states))}")

    await becomes("unpaid")
    # Still there to be forked, at no charge; nobody pays, and it goes.
    assert (await client.get(where)).json()["rate_msats_per_s"] == 0
    await becomes("dropped")
    assert (await client.get(where)).json()["reason"] == "retention_over"
    assert paid.backend.kept_disks == {}


async def test_an_account_keeps_no_more_than_it_may(paid: Served) -> None:
    client = await funded(paid, "team")
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    first = await taken(client, path)
    await taken(client, path)
    refused = await client.post(f"{path}/snapshots", {})
    assert (refused.status_code, refused.json()["reason"]) == (403, "snapshot_quota")
    await client.delete(f"/v1/snapshots/{first['id']}")
    await taken(client, path)


async def test_the_snapshots_of_a_key_that_ends_go_with_it(paid: Served) -> None:
    client = await funded(paid, "team")
    theirs = await cut(paid, client, budget_sats=1000, scopes=[*SCOPES, "sandboxes:manage"])
    path = f"/v1/sandboxes/{(await theirs.post('/v1/sandboxes', {})).json()['id']}"
    await taken(theirs, path)
    ended = await client.delete(f"/v1/keys/{theirs.credentials.public_key}")
    assert ended.status_code in (200, 204), ended.text
    await eventually(lambda: not paid.backend.kept_disks and not paid.backend.boxes, seconds=15)
