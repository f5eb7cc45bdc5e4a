"""Work whose sandbox was ended by money, on real walls: who pays is told so, and it is no fault of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.http.charging import good, paid
from tests.support.http.execute import SMALL, look, submit
from tests.support.http.served import Served
from tests.support.http.signed import Client

__all__ = ["paid"]
# At a hundred sats a second; the starts of a session and a sandbox take some of it.
SECONDS = 8
WAIT = "import time; time.sleep(100)"
# How each way of ending is told: status, code, reason, and what the words say to do.
DRY = (402, "insufficient_credit", "grace_over", "Add credit")
CAPPED = (403, "forbidden", "spending_cap", "cap raised")


async def account(paid: Served, *, sats: int, cap: int | None = None) -> Client:
    agent = await paid.stranger("agent")
    gift = {"sats": sats, "id": "first", "reason": "a gift"}
    await good(paid.client, "POST", "/v1/accounts/agent/adjust", gift)
    if cap is not None:
        caps = {"caps": {"per_sandbox_sats": cap}, "reason": "a test"}
        await good(paid.client, "PUT", "/v1/accounts/agent/caps", caps)
    return agent


async def funds_for(paid: Served, how: tuple[int, str, str, str]) -> Client:
    if how is DRY:
        return await account(paid, sats=SECONDS * 100)
    return await account(paid, sats=100_000, cap=SECONDS * 100)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", [DRY, CAPPED], ids=["dry", "capped"])
async def test_an_exec_and_a_cell_under_which_money_ended_the_sandbox_say_so(
    paid: Served, how: tuple[int, str, str, str]
) -> None:
    status, code, reason, advice = how
    agent = await funds_for(paid, how)
    made = await good(agent, "POST", "/v1/sandboxes", {"resources": SMALL, "ttl": "1h"})
    box = f"/v1/sandboxes/{made['id']}"
    session = await good(agent, "POST", "/v1/sessions", {"language": "python", "sandbox_id": made["id"]})
    cells = f"/v1/sessions/{session['id']}/cells"
    async with asyncio.TaskGroup() as group:
        execs = group.create_task(agent.post(f"{box}/exec", {"command": "sleep 100"}))
        streamed = group.create_task(last_event(agent, f"{box}/exec?stream=true", {"command": "sleep 100"}))
        cell = group.create_task(good(agent, "POST", cells, {"code": WAIT, "timeout_s": 100}))
    answer = execs.result()
    assert (answer.status_code, answer.json()["code"], answer.json()["reason"]) == (status, code, reason), (
        answer.text
    )
    assert advice in answer.json()["next_step"]
    assert streamed.result()["code"] == code
    assert (cell.result()["status"], cell.result()["error"]["name"]) == ("died", "session_died")
    assert advice in cell.result()["error"]["message"], cell.result()
    again = await agent.post(cells, {"code": "1"})
    assert (again.status_code, again.json()["code"]) == (status, code), again.text


async def last_event(agent: Client, path: str, body: dict[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async for event in agent.events("POST", path, body=body):
        found = event.data
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", [DRY, CAPPED], ids=["dry", "capped"])
async def test_a_run_and_a_job_that_money_ended_say_so(paid: Served, how: tuple[int, str, str, str]) -> None:
    status, code, reason, _ = how
    agent = await funds_for(paid, how)
    wanted = {"language": "python", "code": WAIT, "ttl_s": 100, **SMALL}
    job = await submit(agent, wanted)
    run = await agent.post("/v1/execute", wanted)
    assert (run.status_code, run.json()["code"], run.json()["reason"]) == (status, code, reason), run.text
    lost = await look(agent, job, 60)
    assert (lost["state"], lost["problem"]["code"]) == ("lost", code), lost
