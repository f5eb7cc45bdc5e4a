"""Payments taken on a real chain: each moves money once, and the ledger says the same as the chain."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Connection

from sandboxer.kernel.errors import Conflict, PaymentRefused
from sandboxer.money.buckets import settle_account, unconfirmed
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.support.payments.x402 import SHOP, Desk, headers_of, topup


async def credit_of(use_cases: Desk, payment: Payment) -> int:
    now = use_cases.clock.now()
    return await use_cases.store.write(lambda conn: settle_account(conn, payment.account, now=now).posted)


async def test_a_paid_offer_is_credited_and_the_money_is_the_shops(use_cases: Desk, wallet: str) -> None:
    before = use_cases.chain.balance(SHOP)
    payment = await use_cases.buy(await use_cases.pay(wallet, sats=1000))
    assert payment.state is State.CONFIRMED
    assert payment.txid is not None
    # 1000 sats at 100,000 dollars a bitcoin are one dollar.
    assert use_cases.chain.balance(SHOP) - before == 1_000_000
    assert await credit_of(use_cases, payment) == 1000


async def test_the_same_payment_again_is_the_same_payment(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    first = await use_cases.buy(payload)
    again = await use_cases.buy(payload)
    assert (again.id, again.txid) == (first.id, first.txid)
    assert await credit_of(use_cases, first) == 1000


async def test_the_same_payment_twice_at_once_is_charged_once(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    before = use_cases.chain.balance(SHOP)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(use_cases.buy(payload)) for _ in range(5)]
    assert len({task.result().id for task in tasks}) == 1
    assert use_cases.chain.balance(SHOP) - before == 1_000_000
    assert await credit_of(use_cases, tasks[0].result()) == 1000


async def test_a_payment_pays_for_one_request(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    await use_cases.buy(payload, topup(request="r1"))
    with pytest.raises(Conflict) as refused:
        await use_cases.buy(payload, topup(request="r2"))
    assert refused.value.facts["reason"] == "payment_used"


async def test_too_little_is_refused_and_nothing_moves(use_cases: Desk, wallet: str) -> None:
    before = use_cases.chain.balance(SHOP)
    with pytest.raises(PaymentRefused) as refused:
        await use_cases.buy(await use_cases.pay(wallet, sats=100), topup(least=101))
    assert refused.value.facts["reason"] == "amount_insufficient"
    assert use_cases.chain.balance(SHOP) == before


async def test_an_empty_wallet_cannot_pay(use_cases: Desk, evm: Anvil) -> None:
    with pytest.raises(PaymentRefused) as refused:
        await use_cases.buy(await use_cases.pay(evm.new_wallet()))
    assert "balance" in str(refused.value.facts["reason"])


async def test_money_that_went_before_settling_leaves_no_credit(use_cases: Desk, wallet: str) -> None:
    """Verified, then the wallet was emptied: the settler says no, and the payment may be tried again."""
    payload = await use_cases.pay(wallet)
    presented = use_cases.x402.checkout.present(headers_of(payload))
    assert presented is not None
    async with use_cases.x402.checkout.take(presented, topup()) as taken:
        _empty(use_cases.chain, wallet)
        payment = await use_cases.x402.checkout.settle(taken.payment)
    assert payment.state is State.QUEUED
    assert await credit_of(use_cases, payment) == 0
    use_cases.chain.fund(address_of(wallet), 5_000_000)
    again = await use_cases.buy(payload)
    assert (again.id, again.state) == (payment.id, State.CONFIRMED)
    assert await credit_of(use_cases, again) == 1000


async def test_what_is_granted_to_a_create_is_unconfirmed_until_it_settles(
    use_cases: Desk, wallet: str
) -> None:
    presented = use_cases.x402.checkout.present(headers_of(await use_cases.pay(wallet)))
    assert presented is not None
    async with use_cases.x402.checkout.take(presented, topup()) as taken:
        now = use_cases.clock.now()

        def fund(conn: Connection) -> int:
            use_cases.x402.checkout.fund(conn, taken.payment, "sbx_x", now)
            return unconfirmed(conn, taken.payment.account)

        assert await use_cases.store.write(fund) == 1000
        payment = await use_cases.x402.checkout.settle(taken.payment)
    assert payment.state is State.CONFIRMED
    assert await use_cases.store.read(lambda conn: unconfirmed(conn, payment.account)) == 0
    assert await credit_of(use_cases, payment) == 1000


async def test_a_withdrawn_payment_gives_back_and_can_be_used_again(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    presented = use_cases.x402.checkout.present(headers_of(payload))
    assert presented is not None
    async with use_cases.x402.checkout.take(presented, topup()) as taken:
        now = use_cases.clock.now()
        await use_cases.store.write(
            lambda conn: use_cases.x402.checkout.fund(conn, taken.payment, "sbx_x", now)
        )
        await use_cases.x402.checkout.withdraw(taken.payment.id, "provision failed")
    assert await credit_of(use_cases, taken.payment) == 0
    again = await use_cases.buy(payload, topup(request="r2"))
    assert again.state is State.CONFIRMED
    assert await credit_of(use_cases, again) == 1000


def _empty(chain: Anvil, key: str) -> None:
    """Move all test dollars of a wallet elsewhere."""
    owner = address_of(key)
    chain.call("anvil_setBalance", [owner, hex(10**18)])
    chain.call("anvil_impersonateAccount", [owner])
    moved = chain.dollar.functions.transfer(SHOP[:2] + "11" * 20, chain.balance(owner))
    chain.web3.eth.wait_for_transaction_receipt(moved.transact({"from": owner}), poll_latency=0.01)
    chain.call("anvil_stopImpersonatingAccount", [owner])
