"""Payments that are not over at once: no answer, few confirmations, a reorganisation, an expiry."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

from sandboxer.kernel.errors import ChainUnavailable, Conflict
from sandboxer.payments.lifecycle import State
from sandboxer.payments.x402.evm_watcher import UNFOUND_FOR, UNFOUND_LOOKS, EvmWatcher, Node
from sandboxer.payments.x402.ways import Facilitator, Fate, Way, Ways
from sandboxer.store.engine import Store
from testchains.evm import KEYS, Anvil
from testchains.evm.anvil import address_of
from testchains.evm.permit2 import send
from tests.support.payments.x402 import SHOP, Desk, balance, follow, headers_of, open_desk, reload, topup


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
def faulty(use_cases: Desk) -> Faulty:
    way = use_cases.x402.ways.find(use_cases.chain.network, "exact")
    assert way is not None
    fake = Faulty(way.facilitator)
    _replace(use_cases.x402.ways, way, fake)
    return fake


def _replace(ways: Ways, way: Way, facilitator: Facilitator) -> None:
    object.__setattr__(way, "facilitator", facilitator)
    assert ways.find(way.network, way.scheme) is way


async def test_no_answer_before_the_broadcast_is_pending_and_paid_once(
    use_cases: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "before"
    payload = await use_cases.pay(wallet)
    payment = await use_cases.buy(payload)
    assert payment.state is State.SETTLEMENT_PENDING
    assert await balance(use_cases, payment) == (0, 0)
    # Presenting it again is no second charge.
    assert (await use_cases.buy(payload)).id == payment.id
    assert faulty.settles == 1
    faulty.fault = None
    await follow(use_cases, payment, State.CONFIRMED)
    assert await balance(use_cases, payment) == (1000, 0)
    assert use_cases.chain.balance(address_of(wallet)) == 4_000_000


async def test_a_nonce_whose_payment_bought_nothing_pays_again_once_its_offer_is_over(
    use_cases: Desk, wallet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a wallet does whose nonces are counted: what was never sent leaves its nonce to the next payment."""
    monkeypatch.setattr("x402.mechanisms.evm.exact.client.create_nonce", lambda: "0x" + "ab" * 32)
    first = await use_cases.pay(wallet)
    presented = use_cases.x402.checkout.present(headers_of(first))
    assert presented is not None
    async with use_cases.x402.checkout.take(presented, topup()) as taken:
        await use_cases.x402.checkout.withdraw(taken.payment.id, "could not be made")
        # While somebody is at it, no other takes its place.
        with pytest.raises(Conflict):
            await use_cases.buy(await use_cases.pay(wallet, sats=2000))
    second = await use_cases.pay(wallet, sats=2000)
    paid = await use_cases.buy(second)
    assert (paid.id, paid.state, paid.sats) == (taken.payment.id, State.CONFIRMED, 2000)
    assert await balance(use_cases, paid) == (2000, 0)
    with pytest.raises(Conflict) as refused:
        await use_cases.buy(first)
    assert refused.value.facts["reason"] == "conflicting_nonce"


async def test_an_answer_lost_after_the_broadcast_is_found_on_the_chain(
    use_cases: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "after"
    payment = await use_cases.buy(await use_cases.pay(wallet))
    assert payment.state is State.CONFIRMED
    assert payment.txid is not None
    assert (await balance(use_cases, payment), faulty.settles) == ((1000, 0), 1)


async def test_a_settler_that_says_no_and_did_it_is_not_believed(
    use_cases: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "lie"
    payment = await use_cases.buy(await use_cases.pay(wallet))
    assert payment.state is State.CONFIRMED
    assert await balance(use_cases, payment) == (1000, 0)


async def test_a_payment_that_nobody_could_settle_fails_when_it_expires_on_the_chain(
    use_cases: Desk, faulty: Faulty, wallet: str
) -> None:
    faulty.fault = "before"
    payment = await use_cases.buy(await use_cases.pay(wallet))
    snapshot = use_cases.chain.snapshot()
    use_cases.chain.advance(400)
    # A node that has lost its memory would say so too.
    missed = await use_cases.x402.checkout.follow(payment)
    assert missed.state is State.SETTLEMENT_PENDING
    use_cases.chain.mine(12)
    over = await follow(use_cases, payment, State.FAILED)
    assert over.reason == "expired"
    assert await balance(use_cases, payment) == (0, 0)
    assert use_cases.chain.balance(address_of(wallet)) == 5_000_000
    use_cases.chain.revert(snapshot)


async def test_few_confirmations_are_pending_credit_within_the_payers_limit(
    evm: Anvil, sqlite_store: Store, tmp_path: Path, wallet: str
) -> None:
    network = {"confirmations": 3}
    async with open_desk(evm, sqlite_store, tmp_path, network=network, pending_limit_sats=600) as use_cases:
        payment = await use_cases.buy(await use_cases.pay(wallet))
        assert payment.state is State.MEMPOOL
        assert await balance(use_cases, payment) == (600, 600)
        evm.mine(3)
        await follow(use_cases, payment, State.CONFIRMED)
        assert await balance(use_cases, payment) == (1000, 0)


async def test_a_reorganisation_takes_the_credit_back_and_the_payment_is_made_again(
    use_cases: Desk, faulty: Faulty, wallet: str
) -> None:
    snapshot = use_cases.chain.snapshot()
    payment = await use_cases.buy(await use_cases.pay(wallet))
    assert (payment.state, await balance(use_cases, payment)) == (State.CONFIRMED, (1000, 0))
    use_cases.chain.revert(snapshot)
    assert use_cases.chain.balance(address_of(wallet)) == 5_000_000
    faulty.fault = "before"
    use_cases.chain.mine(2)
    await follow(use_cases, payment, State.DOUBTED)
    assert await balance(use_cases, payment) == (1000, 0)
    use_cases.chain.mine(12)
    pending = await follow(use_cases, payment, State.SETTLEMENT_PENDING)
    assert await balance(use_cases, pending) == (0, 0)
    faulty.fault = None
    await follow(use_cases, pending, State.CONFIRMED)
    assert use_cases.chain.balance(address_of(wallet)) == 4_000_000
    assert await balance(use_cases, payment) == (1000, 0)


async def test_what_is_deep_enough_is_not_watched_for_ever(use_cases: Desk, wallet: str) -> None:
    payment = await use_cases.buy(await use_cases.pay(wallet))
    assert payment.look_at is not None
    use_cases.chain.mine(20)
    use_cases.clock.ahead += payment.look_at - use_cases.clock.now()
    await use_cases.x402.reconciler.round()
    assert (await reload(use_cases, payment)).look_at is None


async def test_one_payer_has_few_payments_under_way(use_cases: Desk, faulty: Faulty, wallet: str) -> None:
    faulty.fault = "before"
    for _ in range(use_cases.x402.settings.unsettled_limit):
        assert (await use_cases.buy(await use_cases.pay(wallet))).state is State.SETTLEMENT_PENDING
    with pytest.raises(Conflict) as refused:
        await use_cases.buy(await use_cases.pay(wallet))
    assert refused.value.facts["reason"] == "too_many_unsettled"
    other = use_cases.chain.new_wallet(5_000_000)
    faulty.fault = None
    assert (await use_cases.buy(await use_cases.pay(other))).state is State.CONFIRMED


async def test_a_slow_chain_is_pending_with_the_transactions_id(use_cases: Desk, wallet: str) -> None:
    """Broadcast, and no block comes: the payer is served within his limit, and charged once."""
    before = use_cases.chain.balance(SHOP)
    payload = await use_cases.pay(wallet)
    use_cases.chain.pause()
    try:
        async with asyncio.timeout(20):
            payment = await use_cases.buy(payload)
        assert payment.state is State.MEMPOOL
        assert payment.txid is not None
        assert await balance(use_cases, payment) == (1000, 1000)
        assert (await use_cases.buy(payload)).id == payment.id
    finally:
        use_cases.chain.resume()
    await follow(use_cases, payment, State.CONFIRMED)
    assert await balance(use_cases, payment) == (1000, 0)
    assert use_cases.chain.balance(SHOP) - before == 1_000_000


class Lagging:
    """The real node behind one address with another that has not seen the newest blocks: no events yet."""

    def __init__(self, real: Node) -> None:
        self._real = real
        self.is_behind = True

    async def call(self, method: str, params: list[Any]) -> Any:
        if self.is_behind and method in ("eth_getLogs", "eth_getTransactionReceipt"):
            return [] if method == "eth_getLogs" else None
        return await self._real.call(method, params)


@pytest.fixture
def lagging(use_cases: Desk) -> Lagging:
    way = use_cases.x402.ways.find(use_cases.chain.network, "exact")
    assert way is not None
    assert isinstance(way.watcher, EvmWatcher)
    node = Lagging(way.watcher._node)
    way.watcher._node = node  # type: ignore[assignment]
    return node


async def test_a_spent_nonce_whose_event_is_not_shown_yet_is_asked_for_again(
    use_cases: Desk, faulty: Faulty, lagging: Lagging, wallet: str
) -> None:
    faulty.fault = "after"
    payment = await use_cases.buy(await use_cases.pay(wallet))
    assert payment.state is State.SETTLEMENT_PENDING
    use_cases.clock.ahead = timedelta(hours=23)
    await use_cases.x402.reconciler.round()
    assert (await reload(use_cases, payment)).state is State.SETTLEMENT_PENDING
    lagging.is_behind = False
    await follow(use_cases, payment, State.CONFIRMED)
    assert await balance(use_cases, payment) == (1000, 0)
    assert faulty.settles == 1


async def test_a_spent_nonce_is_given_up_after_a_day_of_asking(
    use_cases: Desk, faulty: Faulty, lagging: Lagging, wallet: str
) -> None:
    faulty.fault = "after"
    payment = await use_cases.buy(await use_cases.pay(wallet))
    use_cases.clock.ahead = UNFOUND_FOR
    # Old enough, but we may have been away all that time.
    with pytest.raises(ChainUnavailable):
        await use_cases.x402.checkout.look(payment)
    seen = await use_cases.x402.checkout.look(replace(payment, looks=UNFOUND_LOOKS))
    assert (seen.fate, seen.reason) == (Fate.FAILED, "nonce_spent")


async def test_a_cancelled_authorization_fails_at_once(use_cases: Desk, faulty: Faulty, wallet: str) -> None:
    faulty.fault = "before"
    payment = await use_cases.buy(await use_cases.pay(wallet))
    _cancel(use_cases.chain, wallet, payment.nonce)
    over = await follow(use_cases, payment, State.FAILED)
    assert over.reason == "nonce_spent"
    assert use_cases.chain.balance(address_of(wallet)) == 5_000_000


def _cancel(chain: Anvil, key: str, nonce: str) -> None:
    """A payer's own right at the token; anyone may carry it there."""
    domain = {
        "name": "Test Dollar",
        "version": "2",
        "chainId": chain.web3.eth.chain_id,
        "verifyingContract": chain.asset,
    }
    types = {
        "CancelAuthorization": [
            {"name": "authorizer", "type": "address"},
            {"name": "nonce", "type": "bytes32"},
        ]
    }
    given = bytes.fromhex(nonce.removeprefix("0x"))
    message = {"authorizer": address_of(key), "nonce": given}
    signed = Account.sign_typed_data(key, domain, types, message)
    r, s = signed.r.to_bytes(32), signed.s.to_bytes(32)
    call = chain.dollar.functions.cancelAuthorization(address_of(key), given, signed.v, r, s)
    send(chain, KEYS[5], call)


async def test_payments_that_buy_something_now_count_for_their_payer(use_cases: Desk, wallet: str) -> None:
    """All would be verified against the same balance, and only the first settled from it."""
    most = use_cases.x402.settings.unsettled_limit
    payloads = [await use_cases.pay(wallet) for _ in range(most + 2)]
    counted = asyncio.Event()
    answers: list[object] = []

    def note(answer: object) -> None:
        answers.append(answer)
        if len(answers) == len(payloads):
            counted.set()

    async def create(payload: PaymentPayload) -> None:
        presented = use_cases.x402.checkout.present(headers_of(payload))
        assert presented is not None
        try:
            async with use_cases.x402.checkout.take(presented, topup()):
                note("taken")
                await counted.wait()
        except Conflict as error:
            note(error.facts["reason"])

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for payload in payloads:
            group.create_task(create(payload))
    assert (answers.count("taken"), answers.count("too_many_unsettled")) == (most, 2)
    # What bought nothing stands in nobody's way.
    assert (await use_cases.buy(payloads[0])).state is State.CONFIRMED


async def test_payments_presented_again_count_for_their_payer(use_cases: Desk, wallet: str) -> None:
    most = use_cases.x402.settings.unsettled_limit
    presented = [
        use_cases.x402.checkout.present(headers_of(await use_cases.pay(wallet))) for _ in range(most + 1)
    ]
    for one in presented:
        assert one is not None
        async with use_cases.x402.checkout.take(one, topup()) as taken:
            await use_cases.x402.checkout.withdraw(taken.payment.id, "provision failed")
    async with AsyncExitStack() as stack:
        for one in presented[:most]:
            assert one is not None
            await stack.enter_async_context(use_cases.x402.checkout.take(one, topup()))
        last = presented[most]
        assert last is not None
        with pytest.raises(Conflict) as refused:
            await stack.enter_async_context(use_cases.x402.checkout.take(last, topup()))
    assert refused.value.facts["reason"] == "too_many_unsettled"
