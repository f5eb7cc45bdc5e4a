"""A paid life over HTTP on real walls, and every sat of it found again in the statement."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.money.verification import verify
from sandboxer.settings import Settings
from tests.support.http.charging import (
    RATES,
    RUNNING,
    becomes,
    events_of,
    good,
    paid,  # noqa: F401
)
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving

SMALL = {"memory_mb": 256, "disk_mb": 128}


def owed_nsats(
    events: list[dict[str, Any]], card: dict[str, Any], ready_at: str, grace_ends: datetime
) -> int:
    """From what the sandbox's own events say of its states: each at its rate for its time, from ready on.

    Grace is charged to its end, however late anyone noticed. The disk of what was reaped is kept for nothing
    until somebody pays, and for its price from then on.
    """
    rates = {
        "ready": card["running_msats"],
        "active": card["running_msats"],
        "grace": card["running_msats"],
        "frozen": card["frozen_msats"],
        "stopped": card["stored_msats"],
        "pays_for_its_disk": card["stored_msats"],
    }
    total = 0
    steps = [(_word(event), datetime.fromisoformat(event["at"])) for event in events if _word(event)]
    first = next(number for number, (word, _) in enumerate(steps) if word == "ready")
    steps[first] = ("ready", datetime.fromisoformat(ready_at))
    for (word, began), (_, ended) in pairwise(steps):
        if word == "grace":
            ended = min(ended, grace_ends)
        total += rates.get(word, 0) * ((ended - began) // timedelta(microseconds=1))
    return total


def _word(event: dict[str, Any]) -> str:
    """Its new state, or on what terms a disk is kept; "": something else happened."""
    return str(
        event["data"].get("to") or (event["reason"] if event["kind"].endswith("terms_changed") else "")
    )


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
    events = await events_of(agent, f"{path}/events")
    (dry,) = [one for one in await events_of(agent, "/v1/accounts/me/events") if one["kind"] == "account.dry"]
    owed = owed_nsats(events, quote, made["ready_at"], datetime.fromisoformat(dry["data"]["reap_at"]))
    # Rounded up for a reader; what a microsecond costs is no sat more.
    rounded = (owed + 10**9 - quote["running_msats"]) // 10**9
    assert gone["spent_sats"] == events[-1]["data"]["sats"] == rounded
    money = (await good(agent, "GET", "/v1/accounts/me"))["money"]
    assert (money["debt"], money["rate_msats"]) == (0, 0)
    statement = (await good(agent, "GET", "/v1/transfers?limit=500"))["transfers"]
    assert sum(line["change"] for line in statement) == money["balance"]
    usage = await good(agent, "GET", "/v1/usage")
    assert usage["total_msats"] == owed // 10**6
    assert usage["total_msats"] // 1000 == 3500 - money["balance"]
    kinds = [event["kind"] for event in await events_of(agent, "/v1/accounts/me/events")]
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
        # Those that came while the first was under way may be told to wait; whoever comes after it is not.
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert answers[-1].status_code == 201
        assert len(made) == len(backend.boxes) == 1
        money = (await good(agent, "GET", "/v1/accounts/me"))["money"]
        assert (money["rate_msats"], money["held"]) == (RUNNING, 0)
        holds = (await good(agent, "GET", "/v1/transfers?limit=500"))["transfers"]
        assert [line["phase"] for line in holds if line["kind"] == "hold"] == ["void", "pending"]
