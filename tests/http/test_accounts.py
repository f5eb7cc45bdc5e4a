"""Accounts over HTTP: money, delegated keys, the operator's acts, the books."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import audit
from sandboxer.identity.key_life import new_claim
from sandboxer.money.buckets import spend
from sandboxer.money.ledger import INCOME
from tests.support.http.accounts import SCOPES, cut, funded
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually
from tests.support.http.signed import Client, Credentials, target
from tests.support.http.wallets import key_proof


async def balance(client: Client) -> int:
    return int((await client.get("/v1/accounts/me")).json()["money"]["balance"])


@flow("showMe", "adjustAccount", "listTransfers", "showUsage")
async def test_an_account_sees_its_money_as_json_and_csv(served: Served) -> None:
    team = await funded(served, "team")
    me = (await team.get("/v1/accounts/me")).json()
    assert me["money"]["balance"] == 10_000
    assert me["money"]["standing"] == "alive"
    assert me["ancestry"] == ["team"]
    page = (await team.get("/v1/transfers")).json()
    assert [(one["kind"], one["change"]) for one in page["transfers"]] == [("adjust", 10_000)]
    exported = await team.get("/v1/transfers?format=csv")
    assert exported.headers["content-type"].startswith("text/csv")
    assert "welcome" in exported.text
    usage = (await team.get("/v1/usage")).json()
    assert usage["account"] == "team"
    assert usage["total_msats"] == sum(line["msats"] for line in usage["usage"])
    assert (await team.get("/v1/usage?format=csv")).text.startswith("subject,use")
    for bad in ("2026-13-01T00:00:00Z", "0001-01-01T00:00:00%2B23:59"):
        assert (await team.get(f"/v1/usage?since={bad}")).status_code == 422
    assert (await served.client.get("/v1/transfers?of=team")).json()["transfers"]
    assert (await served.client.get("/v1/usage?of=nobody")).status_code == 404


@flow("sendSats", "verifyLedger")
async def test_sats_are_given_once_by_public_id_and_neither_sees_the_others_account(served: Served) -> None:
    giver, taker = await funded(served, "giver"), await funded(served, "taker", 1)
    to = (await taker.get("/v1/accounts/me")).json()["account"]["public_id"]
    body = {"to": to, "sats": 400, "id": "g1", "reason": "thanks"}
    assert (await giver.post("/v1/transfers", body)).json()["is_new"]
    assert not (await giver.post("/v1/transfers", body)).json()["is_new"]
    assert (await balance(giver), await balance(taker)) == (9_600, 401)
    assert (await giver.post("/v1/transfers", {**body, "sats": 401})).status_code == 409
    short = await giver.post("/v1/transfers", {**body, "sats": 10**6, "id": "g2"})
    assert short.status_code == 402
    assert short.json()["available"] == 9_600
    nobody = await giver.post("/v1/transfers", {**body, "to": "pub_0", "id": "g3"})
    assert nobody.status_code == 404
    for who, other in ((giver, "bucket:taker"), (taker, "giver")):
        assert other not in (await who.get("/v1/transfers")).text
        assert other not in (await who.get("/v1/transfers?format=csv")).text
    assert (await served.client.get("/v1/ledger/verify")).json()["is_whole"]


@flow("cutKey", "showKeyTree", "topUpKey")
async def test_a_child_key_gets_a_budget_and_the_tree_shows_it(served: Served) -> None:
    team = await funded(served, "team")
    child = await cut(served, team, budget_sats=1_000, depth=1)
    grandchild = await cut(served, child, budget_sats=100, scopes=["account:read"])
    assert (await balance(team), await balance(child), await balance(grandchild)) == (9_000, 900, 100)
    where = f"/v1/keys/{child.credentials.public_key}/top-up"
    for _ in range(2):
        assert (await team.post(where, {"sats": 50, "id": "t1"})).status_code == 200
    assert await balance(child) == 950
    tree = (await team.get("/v1/keys/tree")).json()
    assert tree["passed_on"] == 1_050
    assert tree["children"][0]["key"]["public_key"] == child.credentials.public_key
    assert tree["children"][0]["children"][0]["balance"] == 100
    below = (await child.get("/v1/keys/tree")).json()
    assert "team" not in [below["account"], *(one["account"] for one in below["children"])]
    deep = f"/v1/keys/{grandchild.credentials.public_key}/top-up"
    assert (await team.post(deep, {"sats": 50, "id": "t2"})).status_code == 404


async def test_revoking_a_key_ends_everything_below_it(served: Served) -> None:
    team = await funded(served, "team")
    child = await cut(served, team, budget_sats=1_000, depth=1)
    grandchild = await cut(served, child, budget_sats=100, scopes=["account:read"])
    stranger = await served.stranger("other")
    where = f"/v1/keys/{child.credentials.public_key}"
    assert (await stranger.delete(where)).status_code == 404
    assert (await team.delete(where)).status_code == 204
    assert (await team.delete(where)).status_code == 204
    for gone in (child, grandchild):
        assert (await gone.get("/v1/accounts/me")).status_code == 401


async def test_a_revoked_keys_sandboxes_are_destroyed_and_its_budget_returns(served: Served) -> None:
    team = await funded(served, "team")
    child = await cut(served, team, budget_sats=1_000, depth=1)
    grandchild = await cut(served, child, budget_sats=500, scopes=SCOPES[:3])
    for who in (child, grandchild):
        assert (await who.post("/v1/sandboxes", {})).status_code == 201
    assert len(served.backend.boxes) == 2
    assert (await team.delete(f"/v1/keys/{child.credentials.public_key}")).status_code == 204
    await eventually(lambda: not served.backend.boxes)
    tree = await ended_tree(team)
    assert tree["children"][0]["children"][0]["key"]["state"] == "ended"
    assert tree["balance"] == 10_000 - tree["subtree_spent"]
    assert (await served.client.get("/v1/ledger/verify")).json()["is_whole"]


async def test_a_key_ends_by_itself_when_its_time_is_over(served: Served) -> None:
    team = await funded(served, "team")
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    child = await cut(served, team, budget_sats=1_000, expires_at=soon)
    tree = await ended_tree(team)
    assert tree["balance"] == 10_000
    assert (await child.get("/v1/accounts/me")).status_code == 401


async def ended_tree(client: Client) -> Any:
    deadline = time.monotonic() + 20
    while (tree := (await client.get("/v1/keys/tree")).json())["children"][0]["key"]["state"] != "ended":
        assert time.monotonic() < deadline, tree
        await asyncio.sleep(0.05)
    return tree


async def test_revoking_the_key_that_cut_ends_what_it_cut(served: Served) -> None:
    team = await funded(served, "team")
    child = await cut(served, team, budget_sats=10)
    assert (await team.delete(f"/v1/keys/{team.credentials.public_key}")).status_code == 204
    assert (await child.get("/v1/accounts/me")).status_code == 401


@flow("validateKey", "suspendKey", "unsuspendKey", "setKeyExpiry")
async def test_a_key_is_suspended_expired_and_judged(served: Served) -> None:
    team = await served.stranger("team")
    key = team.credentials.public_key

    async def verdict() -> dict[str, object]:
        answer = await served.client.http.post("/v1/keys/validate", json={"public_key": key})
        return dict(answer.json())

    assert (await verdict())["is_valid"]
    assert (await team.post(f"/v1/keys/{key}/suspend", {"why": "x"})).status_code == 403
    assert (await served.client.post(f"/v1/keys/{key}/suspend", {"why": "abuse"})).status_code == 204
    assert (await verdict())["reason"] == "suspended"
    assert (await team.get("/v1/sandboxes")).json()["reason"] == "suspended"
    assert (await served.client.post(f"/v1/keys/{key}/unsuspend")).status_code == 204
    past = {"expires_at": "2020-01-01T00:00:00Z"}
    assert (await served.client.send("PUT", f"/v1/keys/{key}/expiry", body=past)).status_code == 204
    assert (await verdict())["reason"] == "expired"
    assert (await team.get("/v1/sandboxes")).json()["reason"] == "expired"
    assert (await served.client.send("PUT", f"/v1/keys/{key}/expiry", body={})).status_code == 204
    assert (await team.get("/v1/sandboxes")).status_code == 200
    entries = (await served.client.get(f"/v1/audit?subject={key}")).json()["entries"]
    assert [one["action"].partition(".")[2] for one in entries] == [
        "create",
        "suspend",
        "unsuspend",
        "set_expiry",
        "set_expiry",
    ]
    body = {"public_key": "sbx-pk-" + "0" * 26}
    unknown = (await served.client.http.post("/v1/keys/validate", json=body)).json()
    assert unknown["reason"] == "invalid_key"


@flow("revealKey")
async def test_a_paid_key_is_revealed_once_to_who_holds_the_claim(served: Served) -> None:
    claim = new_claim()
    platform = served.platform
    key = await platform.store.write(
        lambda conn: platform.key_life.prepare(conn, "payer", "k", claim_hash=claim.hash, actor="test")
    )
    path, http = f"/v1/keys/{key}/reveal", served.client.http
    assert (await http.post(path, json={"claim": "wrong"})).status_code == 404
    made = (await http.post(path, json={"claim": claim.token})).json()
    credentials = Credentials(made["public_key"], made["secret_key"])
    assert (await served.as_(credentials).get("/v1/sandboxes")).status_code == 200
    assert (await http.post(path, json={"claim": claim.token})).status_code == 409
    assert (await http.post(path, json={"claim": claim.token, "regenerate": True})).status_code == 409


async def test_an_account_makes_another_key_with_a_fresh_signature(served: Served) -> None:
    team = await served.stranger("team")
    asked = await team.post("/v1/keys", {"name": "second"})
    assert asked.status_code == 428
    given = key_proof(asked.json(), team.credentials.public_key, team.credentials.secret_key)
    made = await team.post("/v1/keys", {"name": "second"}, headers=given)
    assert made.status_code == 201, made.text
    assert made.json()["account"] == "team"
    assert (await served.client.post("/v1/keys", {"name": "whose"})).status_code == 422


@flow(
    "createAccount", "listAccounts", "showAccount", "suspendAccount", "reinstateAccount", "closeAccount",
    "entitleAccount", "capAccount",
)  # fmt: skip
async def test_the_operator_opens_entitles_caps_suspends_and_closes_accounts(served: Served) -> None:
    owner = served.client
    made = await owner.post("/v1/accounts", {"id": "acme", "name": "Acme", "reason": "signed up"})
    assert made.status_code == 201, made.text
    assert (await owner.post("/v1/accounts", {"id": "acme", "reason": "again"})).status_code == 409
    assert (await owner.post("/v1/accounts", {"id": "me", "reason": "trick"})).status_code == 422
    acme = await served.stranger("acme")
    tier = {"tier": 32, "until": "2100-01-01T00:00:00Z", "reason": "bought"}
    assert (await owner.post("/v1/accounts/acme/entitle", tier)).json()["tier"] == 32
    # These tests allow 10,000 without a tier: buying one does not lower that.
    assert (await acme.get("/v1/accounts/me")).json()["requests_per_minute"] == 10_000
    body = {"public_key": acme.credentials.public_key}
    judged = (await served.client.http.post("/v1/keys/validate", json=body)).json()
    assert judged["tier"]["requests_per_minute"] == 10_000
    caps = {"caps": {"per_day_sats": 5}, "reason": "careful"}
    capped = await owner.send("PUT", "/v1/accounts/acme/caps", body=caps)
    assert capped.json()["caps"] == {"per_day_sats": 5}
    assert (await owner.post("/v1/accounts/acme/suspend", {"reason": "abuse"})).status_code == 200
    refused = await acme.get("/v1/sandboxes")
    assert (refused.status_code, refused.json()["reason"]) == (403, "not_active")
    assert (await owner.post("/v1/accounts/acme/reinstate", {"reason": "sorry"})).status_code == 200
    assert (await acme.get("/v1/sandboxes")).status_code == 200
    assert (await owner.post("/v1/accounts/acme/suspend", {"reason": " "})).status_code == 422
    assert (await owner.post("/v1/accounts/acme/close", {"reason": "left"})).json()["status"] == "closed"
    assert (await acme.get("/v1/sandboxes")).status_code == 403
    assert (await owner.get("/v1/accounts/acme")).json()["money"]["balance"] == 0
    assert (await owner.post("/v1/accounts/owner/close", {"reason": "no"})).status_code == 409
    listed = (await owner.get("/v1/accounts")).json()["accounts"]
    assert [one["id"] for one in listed] == ["owner", "acme"]
    assert (await owner.get("/v1/accounts/nobody")).status_code == 404


@flow("payOut", "showLedgerTotals", "listAudit", "exportAudit", "verifyAudit")
async def test_the_books_are_whole_and_what_the_operator_did_is_in_them(served: Served) -> None:
    owner, team = served.client, await funded(served, "team")
    body = {"sats": -500, "id": "use", "reason": "test"}
    assert (await owner.post("/v1/accounts/team/adjust", body)).status_code == 200
    too_much = await owner.post("/v1/payouts", {"sats": 1, "id": "p1", "reason": "rent"})
    assert too_much.status_code == 402
    platform = served.platform
    now = platform.clock.now()
    await platform.store.write(lambda conn: _earn(conn, now))
    paid = await owner.post("/v1/payouts", {"sats": 7, "id": "p1", "reason": "rent"})
    assert paid.status_code == 201, paid.text
    assert await balance(team) == 9_490
    sums = (await owner.get("/v1/ledger/totals")).json()["totals"]["sats"]
    assert sum(sums.values()) == 0
    entries = (await owner.get("/v1/audit")).json()["entries"]
    done = [entry["action"] for entry in entries]
    assert done == ["key.create", "account.adjust", "account.adjust", "income.pay_out"]
    assert {entry["actor"] for entry in entries} == {f"key:{served.owner.public_key}"}
    lines = (await owner.get("/v1/audit/export")).text.splitlines()
    anchor = audit.verify_export(iter(lines))
    proof = (
        await owner.get(target("/v1/audit/verify", anchor_seq=anchor.seq, anchor_hash=anchor.hash))
    ).json()
    assert proof["is_whole"]
    assert json.loads(lines[-1])["hash"] == proof["head_hash"]
    wrong = await owner.get(target("/v1/audit/verify", anchor_seq=anchor.seq, anchor_hash="0" * 64))
    assert not wrong.json()["is_whole"]
    assert (await owner.get("/v1/audit/verify?anchor_seq=1")).status_code == 422


def _earn(conn: Connection, now: datetime) -> None:
    spend(conn, "team", 10, id="test:earn", to=INCOME, kind="test", reason="test", now=now)


@flow("getPricing", "getPricingForAgents", "askQuote")
async def test_prices_are_public_and_a_quote_locks_them(served: Served) -> None:
    http = served.client.http
    prices = (await http.get("/v1/pricing")).json()
    assert prices == (await http.get("/pricing-for-agents.json")).json()
    assert len(prices["tiers"]) == 160
    three = next(one for one in prices["tiers"] if (one["tier"], one["months"]) == (1, 3))
    assert three["usd_cents"] == 1953
    team = await served.stranger("team")
    quote = (await team.post("/v1/quotes", {"duration": "1h"})).json()
    assert quote["sats"] == -(-quote["running_msats"] * 3600 // 1000)
    assert quote["expires_at"] > quote["quoted_at"]
    assert (await team.post("/v1/quotes", {"duration": "0s"})).status_code == 422
    assert (await team.post("/v1/quotes", {"profile": "profile.none"})).status_code == 422


async def test_what_the_operator_does_to_a_tenants_sandbox_is_in_the_audit_log(served: Served) -> None:
    tenant = await served.stranger("team")
    theirs = (await tenant.post("/v1/sandboxes", {})).json()["id"]
    own = (await served.client.post("/v1/sandboxes", {})).json()["id"]
    for sandbox in (theirs, own):
        assert (await served.client.post(f"/v1/sandboxes/{sandbox}/stop")).status_code == 200
        assert (await served.client.delete(f"/v1/sandboxes/{sandbox}")).status_code == 200
    entries = (await served.client.get("/v1/audit")).json()["entries"]
    reported = [(one["action"], one["subject"]) for one in entries if one["action"].startswith("sandbox.")]
    assert reported == [("sandbox.stop", theirs), ("sandbox.destroy", theirs)]


async def test_a_suspended_account_runs_nothing_and_loses_nothing(served: Served) -> None:
    root, other = await funded(served, "root"), await funded(served, "other")
    child = await cut(served, root, budget_sats=100, slots=2)
    mine, frozen, theirs, others = [
        str((await one.post("/v1/sandboxes", {})).json()["id"]) for one in (root, root, child, other)
    ]
    assert (await root.post(f"/v1/sandboxes/{frozen}/freeze")).status_code == 200
    seen = served.platform.sandboxes.repository.peek

    def states(*ids: str) -> list[str]:
        found = (seen(one) for one in ids)
        return [f"{one.state.value} {one.reason}" for one in found if one is not None]

    assert (await served.client.post("/v1/accounts/root/suspend", {"reason": "mines"})).status_code == 200
    await eventually(lambda: states(mine, theirs) == ["stopped account_suspended"] * 2)
    assert states(frozen)[0].startswith("frozen")
    assert states(others)[0].startswith("ready")
    told = (await served.client.get(f"/v1/sandboxes/{mine}")).json()
    assert (told["state"], told["reason"]) == ("stopped", "account_suspended")
    assert (await served.client.post("/v1/accounts/root/reinstate", {"reason": "sorry"})).status_code == 200
    resumed = await root.post(f"/v1/sandboxes/{mine}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "ready"), resumed.text


@pytest.mark.parametrize("is_own", [False, True])
async def test_what_a_suspended_key_delegated_runs_nothing_either(served: Served, is_own: bool) -> None:
    root = await funded(served, "root")
    scopes = [*SCOPES, "sandboxes:manage"]
    child = await cut(served, root, budget_sats=1000, slots=2, depth=1, scopes=scopes)
    grandchild = await cut(served, child, budget_sats=100, slots=1)
    mine, theirs, below = [
        str((await one.post("/v1/sandboxes", {})).json()["id"]) for one in (root, child, grandchild)
    ]
    seen = served.platform.sandboxes.repository.peek

    def states() -> list[str]:
        found = (seen(one) for one in (mine, theirs, below))
        return [one.state.value for one in found if one is not None]

    key = (child if is_own else root).credentials.public_key
    assert (await served.client.post(f"/v1/keys/{key}/suspend", {"why": "looks stolen"})).status_code == 204
    await eventually(lambda: states() == ["ready", "stopped", "stopped"])
    assert (await served.client.post(f"/v1/keys/{key}/unsuspend")).status_code == 204
    resumed = await child.post(f"/v1/sandboxes/{theirs}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "ready"), resumed.text
    # A change of its account is looked at again, and finds nothing.
    await served.client.post("/v1/accounts/root/adjust", {"sats": 1, "reason": "more"})
    assert states() == ["ready", "ready", "stopped"]


async def test_what_was_being_made_when_its_account_was_suspended_does_not_run_either(served: Served) -> None:
    root = await funded(served, "root")
    repository = served.platform.sandboxes.repository
    async with asyncio.TaskGroup() as group:
        making = group.create_task(root.post("/v1/sandboxes", {}))
        await eventually(lambda: any(one.account == "root" for one in repository.living()))
        await served.client.post("/v1/accounts/root/suspend", {"reason": "mines"})
    if making.result().status_code == 201:
        await eventually(lambda: all(one.state.value == "stopped" for one in repository.living()))
