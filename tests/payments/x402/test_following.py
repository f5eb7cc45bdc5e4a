"""Payments that are not over at once: no answer, few confirmations, a reorganisation, an expiry."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

from sandboxer.kernel.errors import Conflict
from sandboxer.money.buckets import settle_account, unconfirmed
from sandboxer.payments import records
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment
from sandboxer.payments.x402.ways import Facilitator, Way, Ways
from sandboxer.store.engine import Store
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.payments.x402.conftest import SHOP, Desk, open_desk


class Faulty:
    """The real facilitator, whose answers get lost: before or after it broadcast."""

    def __init__(self, real: Facilitator) -> None:
        self._real = real
        self.fault: str | None = None
        self.settles = 0

    async def verify(self, payload: PaymentPayload, requirements: PaymentRequirements) -> VerifyResponse:
        return await self._real.verify(payload, requirements)

    async def settle(self, payload: PaymentPayload, requirements: PaymentRequirements) -> SettleResponse:
        self.settles += 1
        if self.fault == "before":
            raise TimeoutError
        answer = await self._real.settle(payload, requirements)
        if self.fault == "after":
            raise ConnectionError
        if self.fault == "lie":
            return SettleResponse(
                success=False, error_reason="unexpected", transaction="", network=requirements.network
            )
        return answer


@pytest.fixture
def faulty(desk: Desk) -> Faulty:
    way = desk.x402.ways.find(desk.chain.network, "exact")
    assert way is not None
    fake = Faulty(way.facilitator)
    _replace(desk.x402.ways, way, fake)
    return fake


def _replace(ways: Ways, way: Way, facilitator: Facilitator) -> None:
    object.__setattr__(way, "facilitator", facilitator)
    assert ways.find(way.network, way.scheme) is way


async def balance(desk: Desk, payment: Payment) -> tuple[int, int]:
    """What its account has, and how much of that is not final."""
    now = desk.clock.now()
    return await desk.store.write(
        lambda conn: (
            settle_account(conn, payment.account, now=now).posted,
            unconfirmed(conn, payment.account),
        )
    )


async def reload(desk: Desk, payment: Payment) -> Payment:
    return await desk.store.read(lambda conn: records.load(conn, payment.id))


async def follow(desk: Desk, payment: Payment, wanted: State) -> Payment:
    """Let the reconciler look as often as it would within ten minutes, in no time."""
    for _ in range(40):
        found = await reload(desk, payment)
        if found.state is wanted:
            return found
        desk.clock.ahead += (found.look_at or desk.clock.now()) - desk.clock.now()
        await desk.x402.reconciler.round()
    raise AssertionError(f"it stayed {found.state}, {found.reason}")


async def test_no_answer_before_the_broadcast_is_pending_and_paid_once(
    desk: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "before"
    payload = await desk.pay(wallet)
    payment = await desk.buy(payload)
    assert payment.state is State.SETTLEMENT_PENDING
    assert await balance(desk, payment) == (0, 0)
    # Presenting it again is no second charge.
    assert (await desk.buy(payload)).id == payment.id
    assert faulty.settles == 1
    faulty.fault = None
    await follow(desk, payment, State.CONFIRMED)
    assert await balance(desk, payment) == (1000, 0)
    assert desk.chain.balance(address_of(wallet)) == 4_000_000


async def test_an_answer_lost_after_the_broadcast_is_found_on_the_chain(
    desk: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "after"
    payment = await desk.buy(await desk.pay(wallet))
    assert payment.state is State.CONFIRMED
    assert payment.txid is not None
    assert (await balance(desk, payment), faulty.settles) == ((1000, 0), 1)


async def test_a_settler_that_says_no_and_did_it_is_not_believed(
    desk: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "lie"
    payment = await desk.buy(await desk.pay(wallet))
    assert payment.state is State.CONFIRMED
    assert await balance(desk, payment) == (1000, 0)


async def test_a_payment_that_nobody_could_settle_fails_when_it_expires_on_the_chain(
    desk: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "before"
    payment = await desk.buy(await desk.pay(wallet))
    snapshot = desk.chain.snapshot()
    desk.chain.advance(400)
    over = await follow(desk, payment, State.FAILED)
    assert over.reason == "expired"
    assert await balance(desk, payment) == (0, 0)
    assert desk.chain.balance(address_of(wallet)) == 5_000_000
    desk.chain.revert(snapshot)


async def test_few_confirmations_are_pending_credit_within_the_payers_limit(
    evm: Anvil, sqlite_store: Store, tmp_path: Path, wallet: str
) -> None:
    network = {"confirmations": 3}
    async with open_desk(evm, sqlite_store, tmp_path, network=network, pending_limit_sats=600) as desk:
        payment = await desk.buy(await desk.pay(wallet))
        assert payment.state is State.MEMPOOL
        assert await balance(desk, payment) == (600, 600)
        evm.mine(3)
        await follow(desk, payment, State.CONFIRMED)
        assert await balance(desk, payment) == (1000, 0)


async def test_a_reorganisation_takes_the_credit_back_and_the_payment_is_made_again(
    desk: Desk, faulty: Faulty, wallet: str
) -> None:
    snapshot = desk.chain.snapshot()
    payment = await desk.buy(await desk.pay(wallet))
    assert (payment.state, await balance(desk, payment)) == (State.CONFIRMED, (1000, 0))
    desk.chain.revert(snapshot)
    assert desk.chain.balance(address_of(wallet)) == 5_000_000
    faulty.fault = "before"
    pending = await follow(desk, payment, State.SETTLEMENT_PENDING)
    assert await balance(desk, pending) == (0, 0)
    faulty.fault = None
    await follow(desk, pending, State.CONFIRMED)
    assert desk.chain.balance(address_of(wallet)) == 4_000_000
    assert await balance(desk, payment) == (1000, 0)


async def test_what_is_deep_enough_is_not_watched_for_ever(desk: Desk, wallet: str) -> None:
    payment = await desk.buy(await desk.pay(wallet))
    assert payment.look_at is not None
    desk.chain.mine(20)
    desk.clock.ahead += payment.look_at - desk.clock.now()
    await desk.x402.reconciler.round()
    assert (await reload(desk, payment)).look_at is None


async def test_one_payer_has_few_payments_under_way(desk: Desk, faulty: Faulty, wallet: str) -> None:
    faulty.fault = "before"
    for _ in range(desk.x402.settings.unsettled_limit):
        assert (await desk.buy(await desk.pay(wallet))).state is State.SETTLEMENT_PENDING
    with pytest.raises(Conflict) as refused:
        await desk.buy(await desk.pay(wallet))
    assert refused.value.facts["reason"] == "too_many_unsettled"
    other = desk.chain.new_wallet(5_000_000)
    faulty.fault = None
    assert (await desk.buy(await desk.pay(other))).state is State.CONFIRMED


async def test_a_slow_chain_is_pending_with_the_transactions_id(desk: Desk, wallet: str) -> None:
    """Broadcast, and no block comes: the payer is served within his limit, and charged once."""
    before = desk.chain.balance(SHOP)
    payload = await desk.pay(wallet)
    desk.chain.pause()
    try:
        async with asyncio.timeout(20):
            payment = await desk.buy(payload)
        assert payment.state is State.MEMPOOL
        assert payment.txid is not None
        assert await balance(desk, payment) == (1000, 1000)
        assert (await desk.buy(payload)).id == payment.id
    finally:
        desk.chain.resume()
    await follow(desk, payment, State.CONFIRMED)
    assert await balance(desk, payment) == (1000, 0)
    assert desk.chain.balance(SHOP) - before == 1_000_000
