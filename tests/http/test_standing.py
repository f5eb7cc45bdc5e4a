"""Suspended and closed accounts buy nothing, whoever asks for them: a key, or a wallet that only pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden
from sandboxer.money.buckets import settle_account
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation
from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.http.served import Served
from tests.support.http.x402 import agent, credit, served, settings_with, shop, signed, wallet
from tests.support.payments.x402 import SHOP

__all__ = ["evm", "served", "wallet"]


async def owner_changes(served: Served, account: str, change: str) -> None:
    answer = await served.client.post(f"/v1/accounts/{account}/{change}", {"reason": "abuse"})
    assert answer.status_code == 200, answer.text


async def account_of(served: Served, wallet: str) -> tuple[str, str]:
    """A wallet that has an account here because it paid once; also the sandbox it got."""
    async with agent(served, wallet) as http:
        made = (await http.post("/v1/sandboxes", json={})).json()
    return made["key"]["account"], made["id"]


async def pay_by_hand(served: Served, wallet: str, path: str, body: dict[str, Any]) -> httpx.Response:
    head = await signed(served, wallet, path, body)
    return await served.client.http.post(path, json=body, headers=head)


@pytest.mark.parametrize("change", ["suspend", "close"])
async def test_the_wallet_of_an_account_that_may_not_act_buys_nothing_without_credentials_either(
    served: Served, evm: Anvil, change: str
) -> None:
    wallet = evm.new_wallet(50_000_000)
    account, sandbox = await account_of(served, wallet)
    if change == "close":
        assert (await served.client.delete(f"/v1/sandboxes/{sandbox}")).status_code == 200
    await owner_changes(served, account, change)
    before, kept = evm.balance(SHOP), await credit(served, account)
    for path, body in (
        ("/v1/sandboxes", {}),
        ("/v1/topups", {"sats": 2000}),
        ("/v1/keys/purchase", {"tier": 1, "months": 1}),
    ):
        refused = await pay_by_hand(served, wallet, path, body)
        assert (refused.status_code, refused.json()["reason"]) == (403, "not_active"), refused.text
    assert evm.balance(SHOP) == before, "nothing was taken"
    assert await credit(served, account) <= kept
    living = (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]
    assert {one["id"] for one in living if one["state"] == "ready"} <= {sandbox}
    if change == "suspend":
        await owner_changes(served, account, "reinstate")
        assert (await pay_by_hand(served, wallet, "/v1/sandboxes", {})).status_code == 201


async def test_nobody_pays_for_an_account_that_may_not_act(served: Served, evm: Anvil, wallet: str) -> None:
    other = await served.stranger("other")
    public_id = (await other.get("/v1/accounts/me")).json()["account"]["public_id"]
    await owner_changes(served, "other", "suspend")
    before = evm.balance(SHOP)
    body = {"sats": 2000, "account": public_id}
    refused = await served.client.http.post("/v1/topups", json=body)
    assert (refused.status_code, refused.json()["reason"]) == (403, "not_active"), refused.text
    assert "suspended" not in refused.text
    assert evm.balance(SHOP) == before


async def test_free_profiles_are_not_for_accounts_that_may_not_act(
    evm: Anvil, wallet: str, tmp_path: Path
) -> None:
    """Also where nothing is charged: the door is where the record is written."""
    settings = settings_with(evm, tmp_path)
    async with shop(evm, tmp_path) as served:
        account, _ = await account_of(served, wallet)
        await owner_changes(served, account, "suspend")
        with pytest.raises(Forbidden):
            await creation.create(
                served.platform.sandboxes,
                CreateRequest(profile=settings.default_profile),
                Caller(public_key="loop", account=account),
            )


async def test_what_a_closed_account_still_has_the_operator_hands_back(served: Served, wallet: str) -> None:
    account, sandbox = await account_of(served, wallet)
    await served.client.delete(f"/v1/sandboxes/{sandbox}")
    await owner_changes(served, account, "close")
    left = await credit(served, account)
    assert left > 0
    shown = (await served.client.get(f"/v1/accounts/{account}")).json()
    assert shown["money"]["balance"] == left
    body = {"sats": -left, "id": "back", "reason": "sent back by hand"}
    assert (await served.client.post(f"/v1/accounts/{account}/adjust", body)).status_code == 200
    now = served.platform.clock.now()
    found = await served.platform.store.write(lambda conn: settle_account(conn, account, now=now))
    assert found.posted == 0
