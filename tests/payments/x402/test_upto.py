"""`upto` through the real Permit2 on a real chain: what is needed moves, once, to us, and never more."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web3.exceptions import ContractLogicError
from x402.schemas import PaymentPayload, SettleResponse

from sandboxer.kernel.errors import Conflict
from sandboxer.money.buckets import settle_account
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment
from sandboxer.payments.x402.presented import Wanted
from sandboxer.payments.x402.ways import Fate, Way
from sandboxer.store.engine import Store
from testchains.evm import KEYS, Anvil
from testchains.evm.anvil import address_of
from testchains.evm.permit2 import cancel_nonce, deploy_permit2, send
from tests.payments.x402.upto import UPTO, carry, pay_upto, ready_wallet, signed_upto
from tests.support.payments.x402 import SHOP, SIGNER_KEY, Desk, altered, headers_of, open_desk, refusal, topup


@pytest.fixture
async def upto(evm: Anvil, sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    deploy_permit2(evm)
    async with open_desk(evm, sqlite_store, tmp_path, network=UPTO) as opened:
        yield opened


@pytest.fixture
def wallet(upto: Desk) -> str:
    return ready_wallet(upto.chain)


def way_of(use_cases: Desk) -> Way:
    way = use_cases.x402.ways.find(use_cases.chain.network, "upto")
    assert way is not None
    return way


def topup_of(sats: int) -> Wanted:
    return replace(topup(sats), most_sats=sats)


async def credited(use_cases: Desk, account: str) -> int:
    now = use_cases.clock.now()
    return (await use_cases.store.write(lambda conn: settle_account(conn, account, now=now))).posted


async def taken(use_cases: Desk, payload: PaymentPayload, wanted: Wanted) -> Payment:
    """Verified and written down, and then nothing happens."""
    presented = use_cases.x402.checkout.present(headers_of(payload))
    assert presented is not None
    async with use_cases.x402.checkout.take(presented, wanted) as found:
        return found.payment


def inner(payload: PaymentPayload, **authorization: Any) -> PaymentPayload:
    changed = json.loads(json.dumps(payload.payload))
    changed["permit2Authorization"] |= authorization
    return payload.model_copy(update={"payload": changed})


async def settled_by_hand(use_cases: Desk, payload: PaymentPayload, **requirements: str) -> SettleResponse:
    """By the facilitator itself, whatever the checkout would say."""
    wanted = payload.accepted.model_copy(update=requirements)
    return await way_of(use_cases).facilitator.settle(payload, wanted)


async def test_all_of_it_moves_where_all_of_it_is_needed(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    before = upto.chain.balance(SHOP)
    paid = await upto.buy(payload)
    assert paid.state is State.CONFIRMED
    assert upto.chain.balance(SHOP) - before == paid.amount == int(payload.accepted.amount)
    assert await credited(upto, paid.account) == 1000


@pytest.mark.parametrize("needed", [1, 333, 999])
async def test_only_what_is_needed_moves_and_is_credited(upto: Desk, wallet: str, needed: int) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    most = int(payload.accepted.amount)
    before = upto.chain.balance(SHOP)
    paid = await upto.buy(payload, topup_of(needed))
    moved = upto.chain.balance(SHOP) - before
    assert paid.state is State.CONFIRMED
    assert moved == paid.amount == -(-most * needed // 1000) < most
    assert await credited(upto, paid.account) == paid.sats == needed


async def test_the_rest_of_what_was_signed_stays_with_the_payer(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    paid = await upto.buy(payload, topup_of(400))
    assert (await upto.buy(payload, topup_of(400))).id == paid.id
    before = upto.chain.balance(address_of(wallet))
    answer = await settled_by_hand(upto, payload)
    assert not answer.success
    assert upto.chain.balance(address_of(wallet)) == before


async def test_more_than_was_signed_is_refused(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    before = upto.chain.balance(SHOP)
    answer = await settled_by_hand(upto, payload, amount=str(int(payload.accepted.amount) + 1))
    assert "exceeds" in str(answer.error_reason)
    assert upto.chain.balance(SHOP) == before


async def test_a_smaller_signature_does_not_pay_an_offer(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    less = signed_upto(wallet, payload.accepted.model_copy(update={"amount": "7"}))
    assert "amount" in await refusal(upto, payload.model_copy(update={"payload": less}))


async def test_a_permit_for_somebody_else_is_refused(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    other = signed_upto(wallet, payload.accepted.model_copy(update={"pay_to": address_of(wallet)}))
    assert "recipient" in await refusal(upto, payload.model_copy(update={"payload": other}))
    # Nor is a permit for us of use to others.
    assert not (await settled_by_hand(upto, payload, pay_to=address_of(KEYS[5]))).success


async def test_a_permit_for_another_facilitator_is_refused(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    extra = {**payload.accepted.extra, "facilitatorAddress": address_of(KEYS[5])}
    other = signed_upto(wallet, payload.accepted.model_copy(update={"extra": extra}))
    assert "facilitator" in await refusal(upto, payload.model_copy(update={"payload": other}))


async def test_an_expired_permit_is_refused(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    expired = inner(payload, deadline=str(int(time.time()) - 1))
    assert "deadline" in await refusal(upto, expired)


async def test_an_altered_permit_is_refused(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    assert "signature" in await refusal(upto, inner(payload, nonce="1"))
    assert await refusal(upto, altered(payload, amount="1")) == "invalid_payment_requirements"


async def test_a_wallet_that_did_not_approve_permit2_is_told_so(upto: Desk) -> None:
    payload = await pay_upto(upto.chain.new_wallet(5_000_000), await upto.offer(1000))
    assert await refusal(upto, payload) == "permit2_allowance_required"


async def test_a_nonce_that_paid_is_no_use_with_another_permit(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    assert (await upto.buy(payload)).state is State.CONFIRMED
    with pytest.raises(Conflict) as refused:
        await upto.buy(inner(payload, deadline="99999999999"))
    assert refused.value.facts["reason"] == "conflicting_nonce"


async def test_a_permit_that_was_written_down_is_not_taken_for_another_amount(
    upto: Desk, wallet: str
) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    assert (await taken(upto, payload, topup_of(300))).state is State.QUEUED
    with pytest.raises(Conflict) as refused:
        await upto.buy(payload, topup_of(900))
    assert refused.value.facts["reason"] == "payment_used"
    assert (await upto.buy(payload, topup_of(300))).sats == 300


async def test_a_settlement_whose_answer_was_lost_is_found_by_its_nonce(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    payment = await taken(upto, payload, topup_of(300))
    answer = await settled_by_hand(upto, payload, amount=str(payment.amount))
    assert answer.success
    # A later transfer of the same sum must not hide it.
    send(upto.chain, wallet, upto.chain.dollar.functions.transfer(SHOP, payment.amount))
    seen = await upto.x402.checkout.look(payment)
    assert (seen.fate, seen.txid) == (Fate.CONFIRMED, answer.transaction)


async def test_a_cancelled_permit_does_not_pass_for_another_that_paid(upto: Desk, wallet: str) -> None:
    """Permit2 tells of no spent nonce: the same sum from the same wallet must not be counted twice."""
    first = await pay_upto(wallet, await upto.offer(1000))
    payment = await taken(upto, first, topup_of(1000))
    second = await pay_upto(wallet, await upto.offer(1000))
    assert (await upto.buy(second, topup_of(1000))).state is State.CONFIRMED
    cancel_nonce(upto.chain, wallet, int(payment.nonce.removeprefix("permit2:")))
    seen = await upto.x402.checkout.look(payment)
    assert (seen.fate, seen.reason) == (Fate.FAILED, "nonce_spent")


@pytest.mark.parametrize(
    ("sender", "more", "witness"),
    [
        (KEYS[5], 0, {}),
        (KEYS[5], 0, {"facilitator": address_of(KEYS[5])}),
        (SIGNER_KEY, 1, {}),
        (SIGNER_KEY, 0, {"to": address_of(KEYS[5])}),
        (SIGNER_KEY, 0, {"validAfter": "1"}),
    ],
    ids=["another sender", "another facilitator", "more", "another recipient", "another time"],
)
async def test_the_chain_itself_refuses_what_was_not_signed(
    upto: Desk, wallet: str, sender: str, more: int, witness: dict[str, str]
) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    before = upto.chain.balance(address_of(wallet))
    with pytest.raises(ContractLogicError):
        carry(upto.chain, sender, payload, more=more, **witness)
    assert upto.chain.balance(address_of(wallet)) == before


async def test_the_chain_itself_takes_a_permit_once(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    carry(upto.chain, SIGNER_KEY, payload, more=-1)
    before = upto.chain.balance(address_of(wallet))
    with pytest.raises(ContractLogicError):
        carry(upto.chain, SIGNER_KEY, payload, more=-1)
    assert upto.chain.balance(address_of(wallet)) == before
