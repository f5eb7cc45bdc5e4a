"""The relay's words: every state, reason and refusal has its place, its category and its next step."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxer.payments.stacks.relay import (
    CATEGORY_OF,
    NEXT_STEPS,
    SETTLE_ERRORS,
    TERMINAL_REASONS,
    Category,
    NextStep,
    NotSettled,
    PaymentState,
    Settled,
    Unreadable,
    category_of,
    identifier_for,
    is_retryable,
    next_step,
    read_settlement,
    read_status,
    with_identifier,
)

S = PaymentState
TXID = "ab" * 32


def test_every_reason_has_a_category_and_every_category_a_next_step() -> None:
    assert set(NEXT_STEPS) == set(Category)
    assert set(TERMINAL_REASONS) == {S.FAILED, S.REPLACED, S.NOT_FOUND}
    assert len(CATEGORY_OF) == sum(len(reasons) for reasons in TERMINAL_REASONS.values()) == 19
    assert not set(CATEGORY_OF) & set(SETTLE_ERRORS)


@pytest.mark.parametrize(
    ("reason", "step", "retryable"),
    [
        ("invalid_transaction", NextStep.FIX_AND_RESEND, False),
        ("sender_nonce_gap", NextStep.REBUILD_AND_RESIGN, True),
        ("sponsor_exhausted", NextStep.RETRY_LATER, True),
        ("chain_abort", NextStep.RETRY_LATER, True),
        ("nonce_replacement", NextStep.START_NEW_PAYMENT, False),
        ("unknown_payment_identity", NextStep.START_NEW_PAYMENT, False),
        ("payment_identifier_conflict", NextStep.START_NEW_PAYMENT, False),
        ("transaction_held", NextStep.WAIT_FOR_CONFIRMATION, True),
        ("a_word_of_next_year", NextStep.RETRY_LATER, True),
    ],
)
def test_a_reason_says_what_to_do_next(reason: str, step: NextStep, retryable: bool) -> None:
    assert (next_step(reason), is_retryable(reason)) == (step, retryable)
    assert category_of(reason) in Category


def test_a_payers_own_identifier_is_kept_and_a_missing_one_is_always_the_same() -> None:
    ours = identifier_for("stacks:1", "SP1", 4)
    assert ours == identifier_for("stacks:1", "SP1", 4) != identifier_for("stacks:1", "SP1", 5)
    assert with_identifier({}, ours)["extensions"]["payment-identifier"]["info"]["id"] == ours
    theirs = {"extensions": {"payment-identifier": {"info": {"id": "order-0000000001"}}, "x": 1}}
    assert with_identifier(theirs, ours) == theirs


@pytest.mark.parametrize(
    "body", [None, [], {}, {"success": "yes"}, {"success": True}, {"success": True, "transaction": "?"}]
)
def test_an_answer_that_makes_no_sense_is_unreadable_and_not_a_failure(body: Any) -> None:
    with pytest.raises(Unreadable):
        read_settlement(body)


def test_answers_are_read() -> None:
    settled = read_settlement(
        {"success": True, "transaction": "0x" + TXID, "payer": "SP1", "paymentId": "pay_1"}
    )
    assert settled == Settled(txid=TXID, payer="SP1", payment_id="pay_1")
    held = read_settlement({"success": False, "errorReason": "transaction_held", "queue": {"senderNonce": 4}})
    assert held == NotSettled(reason="transaction_held", queue={"senderNonce": 4})


def test_confirmed_without_a_block_is_not_believed() -> None:
    assert read_status({"status": "confirmed", "txid": TXID}).state is S.MEMPOOL
    assert read_status({"status": "confirmed", "txid": TXID, "blockHeight": 7}).state is S.CONFIRMED
    assert read_status({"status": "submitted"}).state is S.QUEUED
    with pytest.raises(Unreadable):
        read_status({"status": "fine"})
