"""Every cell of the payment table is a move or a refusal."""

from __future__ import annotations

import itertools

import pytest

from sandboxer.kernel.errors import IllegalTransition
from sandboxer.payments.lifecycle import FAILURES, TRANSITIONS, Signal, State, next_state


@pytest.mark.parametrize(("state", "signal"), list(itertools.product(State, Signal)))
def test_every_cell_is_a_move_or_a_refusal(state: State, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, signal)


def test_what_failed_stays_failed() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in FAILURES]


def test_a_lost_answer_is_never_a_failure() -> None:
    assert next_state(State.BROADCASTING, Signal.LOSE) is State.SETTLEMENT_PENDING
    assert next_state(State.MEMPOOL, Signal.LOSE) is State.SETTLEMENT_PENDING


def test_confirmations_can_go_down_again() -> None:
    assert next_state(State.DOUBTED, Signal.UNCONFIRM) is State.SETTLEMENT_PENDING


def test_nothing_is_taken_back_that_was_not_in_doubt_first() -> None:
    assert [state for state, signal in TRANSITIONS if signal is Signal.UNCONFIRM] == [State.DOUBTED]
