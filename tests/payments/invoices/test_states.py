"""The table itself: every cell is a move or a refusal, and the documents show what it is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandboxer.kernel.clock import add_months
from sandboxer.kernel.errors import IllegalTransition
from sandboxer.payments.goods import entitled_until
from sandboxer.payments.invoices.records import (
    DELIVERED,
    OPEN,
    TRANSITIONS,
    RefundState,
    Signal,
    State,
    next_state,
)
from sandboxer.payments.invoices.refunds import TRANSITIONS as REFUND_TRANSITIONS
from sandboxer.payments.invoices.refunds import next_refund_state

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("signal", Signal)
def test_every_cell_is_a_move_a_rest_or_a_refusal(state: State, signal: Signal) -> None:
    try:
        reached = next_state(state, signal)
    except IllegalTransition:
        assert (state, signal) not in TRANSITIONS
    else:
        assert reached is TRANSITIONS.get((state, signal), state)


def test_every_state_can_be_reached_from_the_first() -> None:
    reached = {State.AWAITING}
    while more := {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_what_was_delivered_is_only_taken_back_or_changed_in_measure() -> None:
    for state in DELIVERED:
        targets = {to for (start, _), to in TRANSITIONS.items() if start is state}
        assert targets <= {*DELIVERED, State.REORGED}


def test_nothing_goes_back_to_being_open_but_what_can_still_be_paid() -> None:
    back = {(start, to) for (start, _), to in TRANSITIONS.items() if to in OPEN and start not in OPEN}
    assert {to for _, to in back} <= {State.SEEN, State.CONFIRMING, State.DUST}
    assert not {start for start, _ in back} & {*DELIVERED, State.REORGED}


@pytest.mark.parametrize("state", RefundState)
@pytest.mark.parametrize("signal", ["send", "give_up", "sent", "confirmed", "reorged", "withdraw"])
def test_a_refund_that_is_sent_is_never_queued_again_and_a_withdrawn_one_stays_so(
    state: RefundState, signal: str
) -> None:
    if (state, signal) in REFUND_TRANSITIONS:
        assert state is not RefundState.WITHDRAWN
        if state in (RefundState.SENT, RefundState.CONFIRMED):
            assert signal in ("confirmed", "reorged", "withdraw")
        return
    with pytest.raises(IllegalTransition):
        next_refund_state(state, signal)


def test_months_end_on_the_day_they_began_or_the_last_there_is() -> None:
    assert add_months(NOW, 1) == NOW.replace(month=4, day=30)
    assert add_months(NOW, 11) == NOW.replace(year=2027, month=2, day=28)
    assert add_months(NOW, 24) == NOW.replace(year=2028)


def test_time_left_of_another_tier_counts_by_what_it_is_worth() -> None:
    until = NOW.replace(month=4, day=10)
    assert entitled_until(4, until, 4, 1, now=NOW) == add_months(until, 1)
    assert entitled_until(4, until, 8, 1, now=NOW) == add_months(NOW + (until - NOW) / 2, 1)
    assert entitled_until(4, NOW, 8, 1, now=NOW) == add_months(NOW, 1)
    assert entitled_until(None, None, 8, 1, now=NOW) == add_months(NOW, 1)
