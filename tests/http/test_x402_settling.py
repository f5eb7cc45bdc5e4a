"""Sandboxes paid for when the settler does not answer, or says no: delivered once, or taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from x402.http.utils import decode_payment_response_header

from sandboxer.money.buckets import settle_account, unconfirmed
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.payments.x402.facilitator import Facilitator, running_facilitator
from tests.support.chains.evm import evm
from tests.support.http.served import Served
from tests.support.http.x402 import agent, shop, signed, state_of, wallet

__all__ = ["evm", "wallet"]


@pytest.fixture
def facilitator(evm: Anvil) -> Iterator[Facilitator]:
    with running_facilitator(evm) as running:
        yield running


@pytest.fixture
async def served(evm: Anvil, tmp_path: Path, facilitator: Facilitator) -> AsyncIterator[Served]:
    network = {"facilitator": facilitator.url}
    async with shop(evm, tmp_path, network=network, settle_timeout="1s") as running:
        yield running


async def test_a_settlement_without_an_answer_delivers_and_is_charged_once(
    served: Served, evm: Anvil, facilitator: Facilitator, wallet: str
) -> None:
    header = await signed(served, wallet, "/v1/sandboxes", {})
    facilitator.stop_at("settle")
    answer = await served.client.http.post("/v1/sandboxes", json={}, headers=header)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["payment"]["state"] == "settlement_pending"
    receipt = decode_payment_response_header(answer.headers["payment-response"])
    assert (receipt.success, receipt.error_reason) == (False, "settlement_pending")
    assert evm.balance(address_of(wallet)) == 5_000_000
    account = made["key"]["account"]
    assert await served.platform.store.read(lambda conn: unconfirmed(conn, account)) > 0
    facilitator.go_on()
    await state_of(served, made["payment"]["id"], "confirmed")
    assert 5_000_000 - evm.balance(address_of(wallet)) == int(made["payment"]["amount"])
    assert await served.platform.store.read(lambda conn: unconfirmed(conn, account)) == 0
    again = await served.client.http.post("/v1/sandboxes", json={}, headers=header)
    assert again.json()["id"] == made["id"]


async def test_a_settler_that_says_no_takes_the_sandbox_back(
    served: Served, evm: Anvil, facilitator: Facilitator, wallet: str
) -> None:
    """Verified, and then the wallet spent its money elsewhere."""
    header = await signed(served, wallet, "/v1/sandboxes", {})
    facilitator.stop_at("verified")

    def empty() -> None:
        assert facilitator.reached.wait(20)
        owner = address_of(wallet)
        evm.call("anvil_setBalance", [owner, hex(10**18)])
        evm.call("anvil_impersonateAccount", [owner])
        evm.dollar.functions.transfer("0x" + "11" * 20, evm.balance(owner)).transact({"from": owner})
        facilitator.go_on()

    async with asyncio.TaskGroup() as group:
        buying = group.create_task(served.client.http.post("/v1/sandboxes", json={}, headers=header))
        group.create_task(asyncio.to_thread(empty))
    answer = buying.result()
    assert answer.status_code == 402, answer.text
    assert answer.json()["code"] == "payment_refused"
    assert served.backend.boxes == {}
    payment_id = answer.json()["payment_id"]
    seen = (await served.client.http.get(f"/v1/payments/{payment_id}")).json()
    assert seen["state"] == "queued"
    listed = await served.client.get("/v1/accounts")
    customer = next(one["id"] for one in listed.json()["accounts"] if one["kind"] == "customer")
    now = served.platform.clock.now()
    bucket = await served.platform.store.write(lambda conn: settle_account(conn, customer, now=now))
    assert (bucket.posted, bucket.held) == (0, 0)


async def test_others_pay_while_one_waits(
    served: Served, evm: Anvil, facilitator: Facilitator, wallet: str
) -> None:
    header = await signed(served, wallet, "/v1/sandboxes", {})
    facilitator.stop_at("settle")
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(served.client.http.post("/v1/sandboxes", json={}, headers=header))
        assert await asyncio.to_thread(facilitator.reached.wait, 20)
        facilitator.go_on()
        async with agent(served, evm.new_wallet(5_000_000)) as http:
            assert (await http.post("/v1/sandboxes", json={})).status_code == 201
    assert slow.result().status_code == 201
