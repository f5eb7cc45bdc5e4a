"""A paid life over HTTP on real walls, and every sat of it found again in the statement."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.money.verification import verify
from sandboxer.settings import Settings
from tests.http.conftest import Served, check_claims, serving
from tests.http.flows import flow
from tests.http.signed import Client
from tests.http.test_real import IMAGES, why_not

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
SMALL = {"memory_mb": 256, "disk_mb": 128}


@pytest.fixture
async def paid(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
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
                check_claims(running, request)
            finally:
                for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def good(client: Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = await client.send(method, path, **({} if body is None else {"body": body}))
    assert answer.status_code in (200, 201), answer.text
    told: dict[str, Any] = answer.json()
    return told


async def becomes(client: Client, path: str, state: str, seconds: float = 15.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (seen := await good(client, "GET", path))["state"] != state:
        assert time.monotonic() < deadline, f"it is {seen['state']}, not {state}"
        await asyncio.sleep(0.05)
    return seen


async def told(client: Client, path: str) -> list[dict[str, Any]]:
    return [event.data async for event in client.events("GET", f"{path}?follow=false")]


def owed_nsats(
    events: list[dict[str, Any]], card: dict[str, Any], ready_at: str, grace_ends: datetime
) -> int:
    """From what the sandbox's own events say of its states: each at its rate for its time, from ready on.

    Grace is charged to its end, however late anyone noticed; what was reaped makes no debt.
    """
    rates = {
        "ready": card["running_msats"],
        "active": card["running_msats"],
        "grace": card["running_msats"],
        "frozen": card["frozen_msats"],
        "stopped": card["stored_msats"],
    }
    total = 0
    steps = [event for event in events if "to" in event["data"]]
    first = next(step for step in steps if step["data"]["to"] == "ready")
    first["at"] = ready_at
    for step, following in pairwise(steps):
        began, ended = (datetime.fromisoformat(one["at"]) for one in (step, following))
        if step["data"]["to"] == "grace":
            ended = min(ended, grace_ends)
        passed = ended - began
        us = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        total += rates.get(step["data"]["to"], 0) * us
    return total


@flow("followAccountEvents", "askQuote", "createSandbox", "extendTtl", "sendSats")
@pytest.mark.timeout(120)
async def test_a_paid_life_adds_up_to_the_sat(paid: Served) -> None:
    agent, friend = await paid.stranger("agent"), await paid.stranger("friend")
    for client, name, sats in ((agent, "agent", 1500), (friend, "friend", 5000)):
        me = (await good(client, "GET", "/v1/accounts/me"))["account"]["id"]
        body = {"sats": sats, "id": f"first-{name}", "reason": "a gift"}
        await good(paid.client, "POST", f"/v1/accounts/{me}/adjust", body)
    quote = await good(agent, "POST", "/v1/quotes", {"resources": SMALL, "duration": "10m"})
    wanted = {"resources": SMALL, "ttl": "10m", "quote_id": quote["id"]}
    made = await good(agent, "POST", "/v1/sandboxes", wanted)
    path = f"/v1/sandboxes/{made['id']}"
    assert made["rate_msats_per_s"] == quote["running_msats"]
    again = await agent.post("/v1/sandboxes", wanted)
    assert (again.status_code, again.json()["reason"]) == (409, "quote_used")
    assert (await good(agent, "POST", f"{path}/exec", {"command": "echo paid"}))["stdout"] == "paid\n"
    await good(agent, "PATCH", f"{path}/ttl", {"duration": "10m"})
    frozen = await good(agent, "POST", f"{path}/freeze")
    assert frozen["rate_msats_per_s"] == quote["frozen_msats"] > 0
    await asyncio.sleep(0.3)
    await good(agent, "POST", f"{path}/thaw")
    stopped = await good(agent, "POST", f"{path}/stop")
    assert stopped["rate_msats_per_s"] == quote["stored_msats"] > 0
    await good(agent, "POST", f"{path}/resume")
    await becomes(agent, path, "grace", 30)
    await becomes(agent, path, "reaped")
    # Someone else pays, by the public id; it wakes by itself.
    public_id = (await good(agent, "GET", "/v1/accounts/me"))["account"]["public_id"]
    rescue = {"to": public_id, "sats": 2000, "id": "rescue", "reason": "wake up"}
    await good(friend, "POST", "/v1/transfers", rescue)
    await becomes(agent, path, "ready")
    gone = await good(agent, "DELETE", path)
    events = await told(agent, f"{path}/events")
    (dry,) = [one for one in await told(agent, "/v1/accounts/me/events") if one["kind"] == "account.dry"]
    owed = owed_nsats(events, quote, made["ready_at"], datetime.fromisoformat(dry["data"]["reap_at"]))
    # The end of grace is told in whole windows of the moment it was noticed: a sat's fraction apart at most.
    assert gone["spent_sats"] == events[-1]["data"]["sats"]
    assert abs(gone["spent_sats"] * 10**9 - owed) < 2 * 10**9
    money = (await good(agent, "GET", "/v1/accounts/me"))["money"]
    assert (money["debt"], money["rate_msats"]) == (0, 0)
    statement = (await good(agent, "GET", "/v1/transfers?limit=500"))["transfers"]
    assert sum(line["change"] for line in statement) == money["balance"]
    usage = await good(agent, "GET", "/v1/usage")
    assert abs(usage["total_msats"] - owed // 10**6) < 1000
    assert usage["total_msats"] // 1000 == 3500 - money["balance"]
    kinds = [event["kind"] for event in await told(agent, "/v1/accounts/me/events")]
    order = [kind for kind in kinds if kind in {"account.low", "account.dry", "account.reaped"}]
    assert order.index("account.low") < order.index("account.dry") < order.index("account.reaped")
    assert "account.funded" in kinds
    assert (await paid.platform.store.read(verify)).is_whole


@pytest.mark.timeout(60)
async def test_the_owner_pays_nothing_and_a_stranger_without_sats_gets_nothing(paid: Served) -> None:
    made = await good(paid.client, "POST", "/v1/sandboxes", {"resources": SMALL})
    assert made["rate_msats_per_s"] == 0
    answer = await (await paid.stranger()).post("/v1/sandboxes", {"resources": SMALL})
    assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_credit")
    gone = await good(paid.client, "DELETE", f"/v1/sandboxes/{made['id']}")
    assert gone["spent_sats"] is None


async def test_the_same_idempotency_key_is_charged_once(settings: Settings) -> None:
    charging = settings.model_copy(update={"charging": True, "pricing": {"rates": RATES}})
    backend = Scripted(name="ext.namespaces")
    async with serving(charging, {"ext.namespaces": backend}) as served:
        agent = await served.stranger("agent")
        await good(agent, "GET", "/v1/accounts/me")
        credit = {"sats": 10**6, "id": "first", "reason": "a gift"}
        await good(served.client, "POST", "/v1/accounts/agent/adjust", credit)

        async def create() -> httpx.Response:
            return await agent.post("/v1/sandboxes", {}, headers={"idempotency-key": "one-and-only"})

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(create()) for _ in range(6)]
        answers = [task.result() for task in tries] + [await create()]
        made = {answer.json()["id"] for answer in answers if answer.status_code == 201}
        # Those that came while the first was under way may be told to wait.
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert len(made) == len(backend.boxes) == 1
        money = (await good(agent, "GET", "/v1/accounts/me"))["money"]
        assert (money["rate_msats"], money["held"]) == (RUNNING, 0)
        holds = (await good(agent, "GET", "/v1/transfers?limit=500"))["transfers"]
        assert [line["phase"] for line in holds if line["kind"] == "hold"] == ["void", "pending"]
