"""Volumes over HTTP on the scripted fake: who has them, what they cost, and what goes wrong."""

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

# Whatever makes a sandbox of its own, and what it needs to be told.
MAKERS: list[tuple[str, dict[str, object]]] = [
    ("/v1/sandboxes", {}),
    ("/v1/execute", {"language": "bash", "code": "true"}),
    ("/v1/execute/async", {"language": "bash", "code": "true"}),
    ("/v1/services", {"name": "s", "command": "true"}),
    ("/v1/sessions", {"language": "python"}),
]


async def made(client: Client, name: str = "models", **wanted: object) -> dict[str, Any]:
    answer = await client.post("/v1/volumes", {"name": name, "size_mb": 64, **wanted})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/volumes/{body['id']}"
    return body


def having(volume: str, *, path: str = "/data", mode: str = "rw") -> dict[str, object]:
    return {"volumes": [{"volume": volume, "path": path, "mode": mode}]}


async def attached(client: Client, volume: str, mode: str = "rw") -> str:
    answer = await client.post("/v1/sandboxes", having(volume, mode=mode))
    assert answer.status_code == 201, answer.text
    return f"/v1/sandboxes/{answer.json()['id']}"


async def write(client: Client, path: str, text: str) -> int:
    answer = await client.send("PUT", f"{path}/files/content?path=/data/file", content=text.encode())
    return answer.status_code


async def read(client: Client, path: str) -> str:
    return (await client.get(f"{path}/files/content?path=/data/file")).text


@flow(
    "createVolume",
    "listVolumes",
    "getVolume",
    "changeVolume",
    "takeVolumeSnapshot",
    "dropVolume",
)
async def test_a_volume_is_made_written_outlives_its_sandbox_is_copied_and_dropped(served: Served) -> None:
    client = served.client
    one = await made(client, labels={"team": "a"})
    assert (one["state"], one["size_mb"], one["attachments"]) == ("ready", 64, [])
    first = await attached(client, "models")
    shown = (await client.get(first)).json()["volumes"]
    assert shown == [{"volume_id": one["id"], "path": "/data", "mode": "rw"}]
    assert await write(client, first, "old") == 200
    for answer in (await client.get("/v1/volumes/models"), await client.get(f"/v1/volumes/{one['id']}")):
        assert [each["mode"] for each in answer.json()["attachments"]] == ["rw"]
        assert answer.json()["used_bytes"] == 3
    kept = await client.post("/v1/volumes/models/snapshots", {"name": "first"})
    assert (kept.status_code, kept.json()["volume_id"], kept.json()["sandbox_id"]) == (201, one["id"], None)
    # A stop is not a detach.
    assert (await client.post(f"{first}/stop")).status_code == 200
    assert (await client.post("/v1/sandboxes", having("models"))).status_code == 409
    assert (await client.post(f"{first}/resume")).status_code == 200
    assert await write(client, first, "new") == 200
    await client.delete(first)
    second = await attached(client, one["id"])
    assert await read(client, second) == "new"
    copy = await made(client, "copy", from_snapshot=kept.json()["id"])
    assert await read(client, await attached(client, "copy")) == "old"
    assert copy["from_snapshot"] == kept.json()["id"]
    changed = await client.send("PATCH", "/v1/volumes/models", body={"size_mb": 128, "labels": {}})
    assert (changed.json()["size_mb"], changed.json()["labels"]) == (128, {})
    refused = await client.delete("/v1/volumes/models")
    assert (refused.status_code, refused.json()["reason"]) == (409, "attached")
    await client.delete(second)
    assert (await client.delete("/v1/volumes/models")).json()["state"] == "dropped"
    assert [each["name"] for each in (await client.get("/v1/volumes")).json()["volumes"]] == ["copy"]
    # Its name is free again; what was kept of it stays.
    await made(client)
    listed = await client.get(f"/v1/snapshots?volume_id={one['id']}")
    assert [each["id"] for each in listed.json()["snapshots"]] == [kept.json()["id"]]


async def test_of_many_who_want_to_write_one_gets_it_and_readers_share(served: Served) -> None:
    client = served.client
    await made(client)
    answers = await asyncio.gather(*(client.post("/v1/sandboxes", having("models")) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    refused = next(answer for answer in answers if answer.status_code == 409).json()
    winner = next(answer for answer in answers if answer.status_code == 201).json()["id"]
    assert (refused["reason"], refused["sandbox_id"]) == ("attached", winner)
    assert await write(client, f"/v1/sandboxes/{winner}", "text") == 200
    assert (await client.post("/v1/sandboxes", having("models", mode="ro"))).status_code == 409
    await client.delete(f"/v1/sandboxes/{winner}")
    readers = await asyncio.gather(*(attached(client, "models", "ro") for _ in range(4)))
    for reader in readers:
        assert await read(client, reader) == "text"
        assert await write(client, reader, "changed") == 422
    assert (await client.post("/v1/sandboxes", having("models"))).status_code == 409
    assert len((await client.get("/v1/volumes/models")).json()["attachments"]) == 4


async def test_what_is_said_of_volumes_must_make_sense(served: Served) -> None:
    client = served.client
    one = await made(client)
    for path in ("/", "/proc", "/dev/shm", "/sys/x", "/etc/ssh", "/run", "/usr", "/a/../etc", "/a//b"):
        refused = await client.post("/v1/sandboxes", having("models", path=path))
        assert refused.status_code == 422, (path, refused.text)
    for path in (
        "/data/",
        "/da\0ta",
        "/" + "p" * 200,
        "/bin",
        "/var",
        "data",
        "/a/./b",
        "/proc/1/root",
        "/etc",
    ):
        for target, body in (("/v1/sandboxes", {}), ("/v1/execute", {"language": "bash", "code": "true"})):
            refused = await client.post(target, {**body, **having("models", path=path)})
            assert refused.status_code == 422, (path, refused.text)
            assert "volumes" in refused.text
    await made(client, "inner")
    for outer, inner in (("/a", "/a/b"), ("/a/b/c", "/a"), ("/a", "/a")):
        places = (("models", outer), ("inner", inner))
        nested = {"volumes": [{"volume": volume, "path": path} for volume, path in places]}
        refused = await client.post("/v1/sandboxes", nested)
        assert (refused.status_code, refused.json()["field"]) == (422, "volumes"), refused.text
    twice = {"volumes": [{"volume": v, "path": p} for v, p in (("models", "/a"), (one["id"], "/b"))]}
    assert (await client.post("/v1/sandboxes", twice)).status_code == 422
    assert (await client.post("/v1/volumes", {"name": "no-size"})).status_code == 422
    refused = await client.post("/v1/volumes", {"name": "models", "size_mb": 16})
    assert (refused.status_code, refused.json()["reason"]) == (409, "name_taken")
    assert (await client.post("/v1/sandboxes", having("nothing"))).status_code == 404
    # A volume's snapshot has no system, a sandbox's is no volume.
    kept = (await client.post("/v1/volumes/models/snapshots", {})).json()
    for target, asked in (
        (f"/v1/snapshots/{kept['id']}/clone", {}),
        (f"/v1/snapshots/{kept['id']}/restore", None),
        ("/v1/sandboxes", {"snapshot": kept["id"]}),
    ):
        refused = await client.post(target, asked)
        assert (refused.status_code, refused.json()["reason"]) == (409, "other_kind"), target
    path = await served.sandbox()
    disk = (await client.post(f"{path}/snapshots", {})).json()
    refused = await client.post("/v1/volumes", {"name": "x", "from_snapshot": disk["id"]})
    assert (refused.status_code, refused.json()["reason"]) == (409, "other_kind")


async def test_a_name_that_could_be_a_path_is_refused_wherever_it_is_said(served: Served) -> None:
    client = served.client
    one = await made(client)
    bad = ["..", ".", "a/b", "/", "../../etc", "a\0b", "n" * 64, "n" * 256, "-n", "A", "a b", "", "ä", "a:b"]
    for name in bad:
        assert (await client.post("/v1/volumes", {"name": name, "size_mb": 16})).status_code == 422, name
        renamed = await client.send("PATCH", f"/v1/volumes/{one['id']}", body={"name": name})
        assert renamed.status_code == 422, name
        for target, body in MAKERS:
            refused = await client.post(target, {**body, **having(name)})
            assert refused.status_code == 422, (target, refused.text)
            assert "volumes.0.volume" in refused.text
    assert [each["name"] for each in (await client.get("/v1/volumes")).json()["volumes"]] == ["models"]


async def test_anothers_volume_is_one_that_never_was(served: Served) -> None:
    one = await made(served.client)
    kept = (await served.client.post("/v1/volumes/models/snapshots", {})).json()
    stranger = await served.stranger()
    where = f"/v1/volumes/{one['id']}"
    for answer in (
        await stranger.get(where),
        await stranger.get("/v1/volumes/models"),
        await stranger.delete(where),
        await stranger.send("PATCH", where, body={"size_mb": 16}),
        await stranger.post(f"{where}/snapshots", {}),
        await stranger.post(f"{where}/lock"),
        await stranger.post(f"{where}/restore", {"snapshot": kept["id"]}),
        *[
            await stranger.post(target, {**body, **having(ref, mode="ro")})
            for ref in (one["id"], "models")
            for target, body in MAKERS
        ],
    ):
        assert answer.status_code == 404, answer.text
    assert (await stranger.get("/v1/volumes")).json()["volumes"] == []
    # The same name is free to them; and the operator sees all, but attaches only what is his.
    theirs = await made(stranger)
    for ref in ("models", theirs["id"]):
        # Theirs, with a snapshot that is not.
        refused = await stranger.post(f"/v1/volumes/{ref}/restore", {"snapshot": kept["id"]})
        assert refused.status_code == 404
    mixed = await served.client.post(f"/v1/volumes/{theirs['id']}/restore", {"snapshot": kept["id"]})
    assert mixed.status_code == 404
    assert (await served.client.post("/v1/sandboxes", having(theirs["id"]))).status_code == 404


async def test_what_fails_says_why_and_leaves_the_volume_free(served: Served) -> None:
    client, backend = served.client, served.backend
    backend.fail_next("make_volume", NoCapacity(resource="disk", why="the storage pool is full"))
    refused = await client.post("/v1/volumes", {"name": "models", "size_mb": 64})
    assert (refused.status_code, refused.json()["code"]) == (503, "no_capacity")
    key = {"idempotency-key": "once"}
    body = {"name": "models", "size_mb": 64}
    first, again = [await client.post("/v1/volumes", body, headers=key) for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    backend.fail_next("provision", ProvisionFailed(step="volumes", why="scripted"))
    failed = await client.post("/v1/sandboxes", having("models"))
    assert failed.status_code == 503
    gone = f"/v1/sandboxes/{failed.json()['sandbox_id']}"
    path = await attached(client, "models")
    # It let go of what another has now.
    refused = await client.post(f"{gone}/recreate")
    assert (refused.status_code, refused.json()["reason"]) == (409, "volumes_let_go")
    assert await write(client, path, "x" * 2_000_000) == 200
    backend.fail_next("resize_volume", NoCapacity(resource="disk", why="the storage pool is full"))
    assert (await client.send("PATCH", "/v1/volumes/models", body={"size_mb": 128})).status_code == 503
    assert (await client.get("/v1/volumes/models")).json()["size_mb"] == 64
    await client.delete(path)
    backend.fail_next("drop_volume", ProvisionFailed(step="disk", why="scripted"))
    assert (await client.delete("/v1/volumes/models")).status_code == 503
    assert (await client.delete(f"/v1/volumes/{first.json()['id']}")).json()["state"] == "dropped"
    assert await backend.volumes() == []


@flow("lockVolume", "unlockVolume")
async def test_a_locked_volume_is_dropped_only_with_the_other_factor(served: Served) -> None:
    client, session = await with_both(served)
    where = f"/v1/volumes/{(await made(client))['id']}"
    assert (await client.post(f"{where}/lock")).json()["locked_at"] is not None
    for method, target in (("DELETE", where), ("POST", f"{where}/unlock")):
        assert (await client.send(method, target)).status_code == 428
    asked = (await client.post(f"{where}/unlock")).json()
    unlocked = await client.post(f"{where}/unlock", headers=proof(asked, session.signer))
    assert unlocked.json()["locked_at"] is None
    assert (await client.delete(where)).json()["state"] == "dropped"


@flow("restoreVolume")
async def test_a_volume_is_put_back_renamed_and_its_lineage_is_shown(served: Served) -> None:
    client = served.client
    one = await made(client)
    box = await attached(client, "models")
    assert await write(client, box, "old") == 200
    kept = (await client.post("/v1/volumes/models/snapshots", {"name": "first"})).json()
    assert await write(client, box, "new") == 200
    back = {"snapshot": kept["id"]}
    # Not under what runs; a stopped sandbox finds it when it is resumed.
    refused = await client.post("/v1/volumes/models/restore", back)
    assert (refused.status_code, refused.json()["reason"]) == (409, "attached")
    assert "Stop" in refused.json()["next_step"]
    assert await read(client, box) == "new"
    assert (await client.post(f"{box}/stop")).status_code == 200
    restored = await client.post("/v1/volumes/models/restore", back)
    assert (restored.status_code, restored.json()["id"], restored.json()["size_mb"]) == (200, one["id"], 64)
    assert (await client.post(f"{box}/resume")).status_code == 200
    assert await read(client, box) == "old"
    copy = await made(client, "copy", from_snapshot=kept["id"])
    second = (await client.post("/v1/volumes/copy/snapshots", {"name": "second"})).json()
    assert second["parent_id"] == kept["id"]
    lines = (await client.get("/v1/snapshots/tree")).json()["lines"]
    assert [(line["name"], line["depth"], line["volume_ids"]) for line in lines] == [
        ("first", 0, [one["id"]]),
        ("second", 1, [copy["id"]]),
    ]
    # Any of one's own volumes can be put to it, if it is large enough; nothing that is not a volume's.
    await client.send("PATCH", "/v1/volumes/copy", body={"size_mb": 16})
    assert (await client.post("/v1/volumes/copy/restore", back)).status_code == 200
    disk = (await client.post(f"{await served.sandbox()}/snapshots", {})).json()
    refused = await client.post("/v1/volumes/copy/restore", {"snapshot": disk["id"]})
    assert (refused.status_code, refused.json()["reason"]) == (409, "other_kind")
    # Another name: who has it attached keeps it, and the old name is free.
    renamed = await client.send("PATCH", "/v1/volumes/models", body={"name": "weights"})
    assert (renamed.json()["name"], renamed.json()["id"]) == ("weights", one["id"])
    assert len(renamed.json()["attachments"]) == 1
    assert (await client.get("/v1/volumes/models")).status_code == 404
    refused = await client.send("PATCH", "/v1/volumes/weights", body={"name": "copy", "size_mb": 128})
    assert (refused.status_code, refused.json()["reason"]) == (409, "name_taken")
    assert (await client.get("/v1/volumes/weights")).json()["size_mb"] == 64
    await made(client, "models")


async def test_whatever_makes_a_sandbox_takes_volumes_in_the_same_words(served: Served) -> None:
    client = served.client
    await made(client)
    rw, ro = having("models"), having("models", mode="ro")
    write_it = {"language": "bash", "code": "echo one > /data/file", **rw}
    # Code run once: the volume is free when the answer is there.
    for _ in range(3):
        ran = await client.post("/v1/execute", write_it)
        assert (ran.status_code, ran.json()["exit_code"]) == (200, 0), ran.text
    assert (await client.get("/v1/volumes/models")).json()["attachments"] == []
    read_it = {"language": "bash", "code": "cat /data/file", **ro}
    readers = await asyncio.gather(*(client.post("/v1/execute", read_it) for _ in range(3)))
    assert [each.json()["stdout"] for each in readers] == ["one\n"] * 3
    # A service has it until it is removed; whoever else would write is refused, whatever they make.
    body = {"name": "db", "command": "echo-server 4242", "port": 4242, **rw}
    service = await client.post("/v1/services?wait=false", body)
    assert service.status_code == 201, service.text
    assert [each["path"] for each in service.json()["volumes"]] == ["/data"]
    snapshot = (await client.post(f"{await served.sandbox()}/snapshots", {})).json()["id"]
    clone = f"/v1/snapshots/{snapshot}/clone"
    for target, wanted in (
        ("/v1/sandboxes", rw),
        ("/v1/sandboxes", {"snapshot": snapshot, **ro}),
        ("/v1/execute", write_it),
        ("/v1/services", {**body, "name": "other"}),
        ("/v1/sessions", {"language": "python", **rw}),
        (clone, rw),
    ):
        refused = await client.post(target, wanted)
        assert (refused.status_code, refused.json()["reason"]) == (409, "attached"), (target, refused.text)
        assert refused.json()["sandbox_id"] == service.json()["sandbox_id"]
    # A job waits for it instead.
    job = (await client.post("/v1/execute/async", write_it)).json()["id"]
    await eventually_put_back(client, job)
    assert (await client.delete("/v1/services/db")).status_code == 200
    # Many clones read; only one may write, and that is said before any is made.
    refused = await client.post(clone, {"count": 2, **rw})
    assert (refused.status_code, refused.json()["field"]) == (422, "volumes.0.mode")
    await job_ended(client, job)
    cloned = (await client.post(clone, {"count": 2, **ro})).json()
    assert [len(each["volumes"]) for each in cloned["sandboxes"]] == [1, 1]
    assert (cloned["failed"], cloned["volumes_left_out"]) == ([], [])


async def test_the_kept_answer_is_given_again_when_what_it_was_made_of_is_gone(served: Served) -> None:
    client = served.client
    volume = await made(client)
    snapshot = (await client.post(f"{await served.sandbox()}/snapshots", {})).json()["id"]
    image = (await client.post("/v1/images", {"snapshot": snapshot, "name": "mine"})).json()["id"]
    asked = [
        ("/v1/execute", {"language": "bash", "code": "true", **having("models")}),
        ("/v1/execute/async", {"language": "bash", "code": "true", **having("models")}),
        ("/v1/sandboxes", {"snapshot": snapshot}),
        ("/v1/sandboxes", {"image": image}),
        ("/v1/services?wait=false", {"name": "a", "command": "echo-server 1", "snapshot": snapshot}),
        ("/v1/services?wait=false", {"name": "b", "command": "echo-server 1", "image": image}),
    ]

    async def post(number: int) -> Any:
        target, body = asked[number]
        return await client.post(target, body, headers={"idempotency-key": f"once-{number}"})

    first = []
    for number, (target, _) in enumerate(asked):
        answer = await post(number)
        assert answer.status_code in (200, 201, 202), (target, answer.text)
        first.append(answer)
    await job_ended(client, first[1].json()["id"])
    for name in ("a", "b"):
        assert (await client.delete(f"/v1/services/{name}")).status_code == 200
    for path in (f"/v1/volumes/{volume['id']}", f"/v1/snapshots/{snapshot}", f"/v1/images/{image}"):
        assert (await client.delete(path)).status_code == 200, path
    for number, (target, _) in enumerate(asked):
        again = await post(number)
        assert (again.status_code, again.content) == (first[number].status_code, first[number].content), (
            target
        )
        assert again.headers["idempotent-replayed"] == "true"


async def eventually_put_back(client: Client, job: str) -> None:
    for _ in range(600):
        shown = (await client.get(f"/v1/jobs/{job}")).json()
        if (shown["state"], shown["reason"]) == ("queued", "conflict"):
            return
        assert shown["state"] in ("queued", "running"), shown
        await asyncio.sleep(0.05)
    raise AssertionError("it did not wait")


async def job_ended(client: Client, job: str) -> None:
    shown = (await client.get(f"/v1/jobs/{job}?wait_s=30")).json()
    assert (shown["state"], shown["result"]["exit_code"]) == ("finished", 0), shown
    # Its sandbox goes after its answer.
    for _ in range(600):
        if not (await client.get("/v1/volumes/models")).json()["attachments"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("its sandbox never went")


async def test_clones_of_a_sandbox_with_a_volume_come_without_it_and_that_is_said(served: Served) -> None:
    client = served.client
    one = await made(client)
    box = await attached(client, "models")
    kept = (await client.post(f"{box}/snapshots", {})).json()["id"]
    cloned = (await client.post(f"/v1/snapshots/{kept}/clone", {"count": 2})).json()
    assert [each["volumes"] for each in cloned["sandboxes"]] == [[], []]
    assert cloned["volumes_left_out"] == [{"volume_id": one["id"], "path": "/data", "mode": "rw"}]


@pytest.fixture
async def paid(tmp_path: Path) -> AsyncIterator[Served]:
    # A volume of 16 MB costs a sat a second.
    rates = {"running_msats": 0, "vcpu_msats": 0, "memory_gb_msats": 0, "stored_disk_gb_msats": 64_000}
    settings = Settings(
        state_dir=tmp_path / "state",
        port=0,
        pricing={"rates": rates},
        storage_deposit="1s",
        grace_window="1s",
        hold_slice="2s",
        retention="2s",
        limit_bucket_only=10_000,
        volumes_per_account=2,
        volumes_mb_per_account=64,
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


async def test_a_volume_is_paid_for_by_its_size_within_its_accounts_quota(paid: Served) -> None:
    client = await funded(paid, "team")
    one = await made(client, size_mb=16)
    assert one["rate_msats_per_s"] == 1000
    larger = await client.send("PATCH", f"/v1/volumes/{one['id']}", body={"size_mb": 32})
    assert larger.json()["rate_msats_per_s"] == 2000
    for body in ({"name": "b", "size_mb": 33}, {"name": "b", "size_mb": 4096}):
        refused = await client.post("/v1/volumes", body)
        assert (refused.status_code, refused.json()["reason"]) == (403, "volume_quota")
    await made(client, "b", size_mb=16)
    refused = await client.post("/v1/volumes", {"name": "c", "size_mb": 16})
    assert (refused.status_code, refused.json()["reason"]) == (403, "volume_quota")
    assert (await client.delete("/v1/volumes/b")).json()["rate_msats_per_s"] == 0
    used = (await client.get("/v1/usage/segments")).json()["segments"]
    assert [each for each in used if each["subject"] == one["id"]]


async def test_who_cannot_pay_gets_none_and_who_runs_dry_keeps_it_for_a_while(paid: Served) -> None:
    client = await funded(paid, "poor", 2)
    assert (await client.post("/v1/volumes", {"name": "b", "size_mb": 64})).status_code == 402
    where = f"/v1/volumes/{(await made(client, size_mb=16))['id']}"
    seen = []

    async def becomes(state: str) -> None:
        for _ in range(400):
            seen.append((await client.get(where)).json()["state"])
            if seen[-1] == state:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never {state}: {sorted(set(seen))}")

    await becomes("unpaid")
    await becomes("dropped")
    assert (await client.get(where)).json()["reason"] == "retention_over"
    assert await paid.backend.volumes() == []


async def test_the_volumes_of_a_key_that_ends_go_with_it(paid: Served) -> None:
    client = await funded(paid, "team")
    theirs = await cut(paid, client, budget_sats=1000, scopes=[*SCOPES, "sandboxes:manage"])
    await made(theirs, size_mb=16)
    assert (await client.delete(f"/v1/keys/{theirs.credentials.public_key}")).status_code in (200, 204)
    await eventually(lambda: not paid.backend._volumes.disks, seconds=15)
