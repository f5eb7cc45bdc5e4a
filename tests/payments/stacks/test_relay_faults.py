"""The relay is slow, gone, forgetful, or drops its answer after the money is on its way."""

from __future__ import annotations

import httpx
import pytest
from x402.schemas import PaymentPayload

from sandboxer.kernel.errors import ChainUnavailable, InvalidRequest
from sandboxer.payments.stacks.facilitator import StacksFacilitator
from sandboxer.payments.stacks.relay import PaymentState, Relay
from tests.support.payments.stacks import Till


async def test_a_dropped_answer_is_asked_for_again_and_nothing_is_paid_twice(till: Till) -> None:
    asked = till.ask(1_000)
    before = len(till.chain.relay.desk.broadcasts)
    till.chain.relay.faults.arm("drop_answer")
    settled = await till.way.facilitator.settle(till.sign(asked), asked)
    assert settled.success
    assert till.chain.relay.desk.broadcasts[before:] == [settled.transaction]
    till.chain.mine()
    assert till.received() == 1_000


async def test_an_answer_that_stays_lost_leaves_the_payment_pending_never_failed(till: Till) -> None:
    asked = till.ask(1_000)
    till.chain.relay.faults.arm("drop_answer", times=2)
    payload = till.sign(asked)
    lost = await till.way.facilitator.settle(payload, asked)
    assert (lost.success, lost.error_reason) == (False, "settlement_pending")
    assert lost.transaction
    assert lost.transaction not in till.chain.relay.desk.broadcasts
    till.chain.mine()
    assert till.received() == 1_000
    # Asking again with the same payment finds what happened.
    found = await till.way.facilitator.settle(payload, asked)
    assert found.transaction == till.chain.relay.desk.broadcasts[-1]


async def test_a_no_after_a_lost_answer_is_not_believed(till: Till) -> None:
    """The relay forgot the first try: its second answer is about a nonce that the first has used."""
    asked = till.ask(1_000)
    payload = till.sign(asked)
    till.chain.relay.faults.arm("drop_answer")

    class Forgetful(Relay):
        calls = 0

        async def settle(self, *body: object) -> object:  # type: ignore[override]
            Forgetful.calls += 1
            if Forgetful.calls == 2:
                till.chain.relay.faults.arm("forget")
                till.chain.mine()
            return await super().settle(*body)  # type: ignore[arg-type]

    async with httpx.AsyncClient(trust_env=False) as http:
        facilitator = StacksFacilitator(till.shop, Forgetful(till.shop.relay, http))
        lost = await facilitator.settle(payload, asked)
    assert (Forgetful.calls, lost.error_reason) == (2, "settlement_pending")
    assert till.received() == 1_000


async def test_a_relay_that_is_too_slow_leaves_the_payment_pending(till: Till) -> None:
    asked = till.ask(1_000)
    till.chain.relay.faults.arm("slow_answer", 1.5)
    async with httpx.AsyncClient(trust_env=False) as http:
        facilitator = StacksFacilitator(till.shop, Relay(till.shop.relay, http, settle_seconds=0.7))
        lost = await facilitator.settle(till.sign(asked), asked)
    assert (lost.success, lost.error_reason) == (False, "settlement_pending")
    till.chain.mine()
    assert till.received() == 1_000


async def test_a_relay_that_is_down_has_heard_nothing(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    till.chain.relay.stop()
    try:
        refused = await till.way.facilitator.settle(payload, asked)
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(ChainUnavailable, match="relay"):
                await Relay(till.shop.relay, http).transaction("00" * 32)
    finally:
        till.chain.relay.start()
    assert refused.error_reason == "unexpected_settle_error"
    assert refused.extra is not None
    assert (refused.extra["sent"], refused.extra["nextSteps"]) == (False, "retry_later")
    assert (await till.way.facilitator.settle(payload, asked)).success


@pytest.mark.parametrize("status", [429, 503])
async def test_a_relay_that_turns_away_at_the_door_has_taken_nothing(till: Till, status: int) -> None:
    asked = till.ask(1_000)
    till.chain.relay.faults.arm("turn_away", status)
    refused = await till.way.facilitator.settle(till.sign(asked), asked)
    assert refused.extra is not None
    assert (refused.error_reason, refused.extra["sent"]) == ("unexpected_settle_error", False)


def named(payload: PaymentPayload, identifier: str) -> PaymentPayload:
    extensions = {"payment-identifier": {"info": {"id": identifier, "required": False}}}
    return payload.model_copy(update={"extensions": extensions})


async def test_the_same_identifier_means_the_same_payment(till: Till) -> None:
    asked = till.ask(1_000)
    identifier = f"order-{till.payer.address}"
    payload = named(till.sign(asked), identifier)
    first = await till.way.facilitator.settle(payload, asked)
    again = await till.way.facilitator.settle(payload, asked)
    assert first.success
    assert again.transaction == first.transaction
    other = named(till.sign(asked), identifier)
    refused = await till.way.facilitator.settle(other, asked)
    assert (refused.success, refused.error_reason) == (False, "payment_identifier_conflict")
    till.chain.mine()
    assert till.received() == 1_000


async def test_a_payment_with_a_nonce_gap_is_held_until_the_gap_is_filled(till: Till) -> None:
    asked = till.ask(1_000)
    early = till.sign(asked, ahead=1)
    held = await till.way.facilitator.settle(early, asked)
    assert (held.success, held.error_reason) == (False, "transaction_held")
    assert held.extra is not None
    assert (held.extra["queue"]["missingNonces"], held.extra["nextSteps"]) == ([0], "wait_for_confirmation")
    till.chain.mine()
    assert till.received() == 0
    assert (await till.way.facilitator.settle(till.sign(asked), asked)).success
    till.chain.mine()
    assert till.received() == 2_000


async def test_the_relay_tells_what_became_of_a_payment(till: Till) -> None:
    asked = till.ask(1_000)
    settled = await till.way.facilitator.settle(till.sign(asked), asked)
    async with httpx.AsyncClient(trust_env=False) as http:
        relay = Relay(till.shop.relay, http)
        assert (await relay.transaction(settled.transaction)).state is PaymentState.MEMPOOL
        height = till.chain.mine()
        confirmed = await relay.transaction(settled.transaction)
        assert (confirmed.state, confirmed.height, confirmed.txid) == (
            PaymentState.CONFIRMED,
            height,
            settled.transaction,
        )
        unknown = await relay.transaction("00" * 32)
        assert unknown.state is PaymentState.NOT_FOUND
        with pytest.raises(InvalidRequest):
            await relay.transaction("00")
