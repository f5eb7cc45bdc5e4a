"""Snapshots and stops with memory over our API: what runs goes on in copies and in itself, and what cannot is
refused with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.http.accounts import funded
from tests.support.http.served import Served, served, settings
from tests.support.http.signed import Client
from tests.support.oci import serving_behind_gvisor
from tests.support.real_backend import state_folder
from tests.support.running import begin_session, said, told

__all__ = ["served", "settings"]

PROFILE = "profile.strong"


@pytest_asyncio.fixture
async def strong() -> AsyncIterator[Served]:
    with state_folder() as state:
        async with serving_behind_gvisor(state, PROFILE, of="agent-dev") as running:
            yield running


async def taken(client: Client, path: str, **wanted: object) -> dict[str, Any]:
    answer = await client.post(f"{path}/snapshots", {"memory": True, **wanted})
    assert answer.status_code == 201, answer.text
    kept: dict[str, Any] = answer.json()
    return kept


@pytest.mark.slow
async def test_a_session_goes_on_in_ten_clones_and_when_it_is_restored(strong: Served) -> None:
    client = strong.client
    path = await strong.sandbox()
    await begin_session(client, path)
    assert await told(client, path, "first") == "42 begun first"
    kept = await taken(client, path)
    assert kept["content"] == "files_and_memory"
    assert await told(client, path, "later") == "42 begun first later"
    made = await client.post(f"/v1/snapshots/{kept['id']}/clone", {"count": 10})
    assert made.status_code == 201, made.text
    clones = [f"/v1/sandboxes/{one['id']}" for one in made.json()["sandboxes"]]
    assert len(clones) == 10, made.text
    words = [f"clone{number}" for number in range(10)]
    answers = await asyncio.gather(
        *(told(client, clone, word) for clone, word in zip(clones, words, strict=True))
    )
    assert answers == [f"42 begun first {word}" for word in words]
    restored = await client.post(f"/v1/snapshots/{kept['id']}/restore")
    assert restored.json()["state"] == "ready", restored.text
    assert await told(client, path, "restored") == "42 begun first restored"
    # Each has what is its own.
    assert await told(client, clones[3], "again") == "42 begun first clone3 again"


@pytest.mark.slow
async def test_what_could_not_go_on_is_refused_with_the_reason(strong: Served) -> None:
    client = strong.client
    volume = (await client.post("/v1/volumes", {"name": "v", "size_mb": 16})).json()
    path = await strong.sandbox()
    kept = await taken(client, path)
    mounts = [{"volume": volume["id"], "path": "/data"}]
    for wanted, reason in (
        ({"volumes": mounts}, "memory_of_mounts"),
        ({"resources": {"memory_mb": 64}}, None),
    ):
        refused = await client.post(f"/v1/snapshots/{kept['id']}/clone", wanted)
        assert refused.status_code in (409, 422), refused.text
        assert refused.json().get("reason") == reason
    given = await client.send("PUT", f"{path}/secrets", body={"values": {"TOKEN": "in-memory-only"}})
    assert given.status_code == 200, given.text
    secret = await client.post(f"{path}/snapshots", {"memory": True})
    assert (secret.status_code, secret.json()["reason"]) == (409, "memory_of_secrets")
    await client.post(f"{path}/stop")
    await client.send("DELETE", f"{path}/secrets")
    stopped = await client.post(f"{path}/snapshots", {"memory": True})
    assert (stopped.status_code, stopped.json()["state"]) == (409, "stopped")
    # Only its files are kept then, and they are enough for a copy that begins anew.
    files = (await client.post(f"{path}/snapshots", {})).json()
    assert files["content"] == "files"


@pytest.mark.slow
async def test_what_a_program_may_hold_of_a_wiped_secret_is_not_kept_until_it_has_ended(
    strong: Served,
) -> None:
    client = strong.client
    path = await strong.sandbox()
    await client.send("PUT", f"{path}/secrets", body={"values": {"TOKEN": "in-memory-only"}})
    holder = (await client.post(f"{path}/processes", {"argv": ["sleep", "1000"]})).json()

    wiped = (await client.send("DELETE", f"{path}/secrets")).json()

    assert wiped == {"wiped": ["TOKEN"], "may_still_hold": [holder["process_id"]]}
    assert (await client.get(f"{path}/secrets")).json() == {"secrets": []}
    for kept in (f"{path}/snapshots", f"{path}/stop?memory=true"):
        refused = await client.post(kept, {"memory": True} if kept.endswith("snapshots") else None)
        assert (refused.status_code, refused.json()["reason"]) == (409, "memory_of_secrets")
    await client.post(f"{path}/stop")
    await client.post(f"{path}/resume")
    await taken(client, path)


@pytest.mark.slow
async def test_what_is_kept_is_measured_with_its_memory_and_dropped_whole(strong: Served) -> None:
    client, states = strong.client, strong.state_dir / "oci" / "memory"
    path = await strong.sandbox()
    await said(client, path, "sh", "-c", "head -c 20000000 /dev/urandom > /dev/shm/held")
    kept = await taken(client, path)
    sizes = (await client.get(f"/v1/snapshots/{kept['id']}")).json()
    assert sizes["exclusive_bytes"] > 20_000_000
    assert kept["size_bytes"] > 20_000_000
    assert [one.name for one in states.iterdir()] == [kept["id"]]
    assert (await client.delete(f"/v1/snapshots/{kept['id']}")).json()["state"] == "dropped"
    assert not list(states.iterdir())


@pytest.mark.slow
async def test_what_runs_is_kept_by_a_stop_and_goes_on_when_it_is_resumed(strong: Served) -> None:
    client, states = strong.client, strong.state_dir / "oci" / "memory"
    path = await strong.sandbox()
    await begin_session(client, path)
    stopped = (await client.post(f"{path}/stop?memory=true")).json()
    assert (stopped["state"], stopped["kept_memory_mb"] > 0) == ("stopped", True)
    assert [f"/v1/sandboxes/{one.name}" for one in states.iterdir()] == [path]
    # A snapshot of it has what it has, and outlives it.
    kept = await taken(client, path)
    resumed = (await client.post(f"{path}/resume")).json()
    assert (resumed["state"], resumed["kept_memory_mb"]) == ("ready", 0)
    assert await told(client, path, "resumed") == "42 begun resumed"
    assert [one.name for one in states.iterdir()] == [kept["id"]]
    await client.delete(path)
    made = (await client.post(f"/v1/snapshots/{kept['id']}/clone", {})).json()
    assert await told(client, f"/v1/sandboxes/{made['sandboxes'][0]['id']}", "copy") == "42 begun copy"


@pytest.mark.slow
async def test_a_second_stop_ends_what_the_first_one_kept(strong: Served) -> None:
    client, states = strong.client, strong.state_dir / "oci" / "memory"
    path = await strong.sandbox()
    await begin_session(client, path)
    assert (await client.post(f"{path}/stop?memory=true")).json()["kept_memory_mb"] > 0
    ended = (await client.post(f"{path}/stop")).json()
    assert (ended["state"], ended["kept_memory_mb"]) == ("stopped", 0)
    assert not list(states.iterdir())
    assert (await client.post(f"{path}/resume")).json()["state"] == "ready"
    assert await said(client, path, "sh", "-c", "cat /root/book; pgrep -f [s]ession.py || echo ended") == (
        "begun ended"
    )
    # One that is destroyed while it is stopped leaves nothing either.
    assert (await client.post(f"{path}/stop?memory=true")).json()["kept_memory_mb"] > 0
    await client.delete(path)
    assert not list(states.iterdir())


@pytest.mark.slow
async def test_what_is_kept_of_memory_costs_as_much_as_disk() -> None:
    gb = 1024
    pricing = {"rates": {"stored_disk_gb_msats": 1000 * gb}}
    with state_folder() as state:
        more = {"charging": True, "pricing": pricing, "storage_deposit": "1s"}
        async with serving_behind_gvisor(state, PROFILE, of="agent-dev", **more) as running:
            client = await funded(running, "team", 1_000_000)
            path = (await client.post("/v1/sandboxes", running.defaults)).json()["id"]
            path = f"/v1/sandboxes/{path}"
            await said(client, path, "sh", "-c", "head -c 20000000 /dev/urandom > /dev/shm/held")
            kept = await taken(client, path)
            mb = -(-kept["size_bytes"] // 2**20)
            assert mb >= 20
            assert kept["rate_msats_per_s"] == 1000 * mb
            plain = (await client.post(f"{path}/stop")).json()
            assert plain["rate_msats_per_s"] == 1000 * 64
            await client.post(f"{path}/resume")
            await said(client, path, "sh", "-c", "head -c 20000000 /dev/urandom > /dev/shm/held")
            stopped = (await client.post(f"{path}/stop?memory=true")).json()
            assert stopped["kept_memory_mb"] >= 20
            assert stopped["rate_msats_per_s"] == 1000 * (64 + stopped["kept_memory_mb"])
            await client.delete(path)
            await client.delete(f"/v1/snapshots/{kept['id']}")


async def test_a_backend_that_keeps_files_alone_says_so(served: Served) -> None:
    path = await served.sandbox()
    refused = await served.client.post(f"{path}/snapshots", {"memory": True})
    assert refused.status_code == 422, refused.text
    assert "keeps files alone" in refused.json()["detail"]
    assert (await served.client.get("/v1/snapshots")).json()["snapshots"] == []
    refused = await served.client.post(f"{path}/stop?memory=true")
    assert refused.status_code == 422, refused.text
    assert (await served.client.get(path)).json()["state"] == "ready"
