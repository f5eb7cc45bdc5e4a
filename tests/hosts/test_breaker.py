"""The breaker of a backend, over any history of creates."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.hosts.routes.breaker import (
    BREAKER,
    CLOSED,
    POLICY,
    TRANSITIONS,
    Breaker,
    BreakerSignal,
    BreakerState,
    abandoned,
    begun,
    failed,
    in_words,
    may_try,
    passed,
)
from sandboxer.kernel.errors import IllegalTransition

NOW = datetime(2030, 1, 1, tzinfo=UTC)
outcomes = st.sampled_from(("passed", "failed", "abandoned", "begun"))
steps = st.lists(st.tuples(outcomes, st.integers(0, 700)), max_size=40)


def _after(history: list[tuple[str, int]]) -> tuple[Breaker, datetime]:
    breaker, now = CLOSED, NOW
    for outcome, seconds in history:
        now += timedelta(seconds=seconds)
        if outcome == "passed":
            breaker = passed(breaker)
        elif outcome == "failed":
            breaker = failed(breaker, why="it is full of bees", now=now)
        elif outcome == "begun":
            breaker = begun(breaker, now=now)
        else:
            breaker = abandoned(breaker)
    return breaker, now


@pytest.mark.parametrize(("state", "signal"), list(product(BreakerState, BreakerSignal)))
def test_every_cell_of_the_table_is_a_move_or_a_refusal(state: BreakerState, signal: BreakerSignal) -> None:
    if (state, signal) in TRANSITIONS:
        assert BREAKER.next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            BREAKER.next_state(state, signal)


@given(steps)
def test_no_history_leads_out_of_the_table_or_into_one_that_is_never_tried_again(
    history: list[tuple[str, int]],
) -> None:
    breaker, now = _after(history)

    longest = max(POLICY.most, POLICY.trial_within)
    assert may_try(breaker, now=now + longest + timedelta(seconds=1))
    assert breaker.state is BreakerState.CLOSED or in_words(breaker, now=now)


@given(steps)
def test_whatever_was_before_one_that_it_made_closes_it(history: list[tuple[str, int]]) -> None:
    breaker, now = _after(history)

    assert passed(breaker) == CLOSED
    assert may_try(passed(breaker), now=now)


@given(steps)
def test_it_opens_only_after_so_many_failures_in_a_row(history: list[tuple[str, int]]) -> None:
    breaker, _ = _after(history)
    row = 0
    for outcome, _ in history:
        row = 0 if outcome == "passed" else row + (outcome == "failed")

    assert (breaker.state is BreakerState.CLOSED) == (row < POLICY.trips_after)


@given(steps)
def test_while_one_tries_it_nobody_else_does(history: list[tuple[str, int]]) -> None:
    breaker, now = _after(history)

    tried = begun(breaker, now=now)

    if tried.state is BreakerState.HALF_OPEN and may_try(breaker, now=now):
        assert not may_try(tried, now=now)
        assert may_try(abandoned(tried), now=now)
        assert not may_try(failed(tried, why="again", now=now), now=now)


def test_it_rests_twice_as_long_after_each_trial_that_fails_up_to_a_bound() -> None:
    breaker, now, rests = _after([("failed", 0)] * 3)[0], NOW, []
    for _ in range(9):
        assert breaker.until is not None
        rests.append((breaker.until - now).total_seconds())
        now = breaker.until
        breaker = failed(begun(breaker, now=now), why="still", now=now)

    assert rests == [15, 30, 60, 120, 240, 480, 600, 600, 600]


@given(st.integers(1, 50))
def test_one_stranger_alone_opens_nothing_and_several_do(times: int) -> None:
    breaker = CLOSED
    for _ in range(times):
        breaker = failed(breaker, why="bad order", now=NOW, stranger="acc_1")
    assert breaker.state is BreakerState.CLOSED

    for number in range(2, 2 + POLICY.trips_after):
        breaker = failed(breaker, why="bad order", now=NOW, stranger=f"acc_{number}")
    assert breaker.state is BreakerState.OPEN


def test_a_trial_that_never_ended_does_not_keep_others_out_for_good() -> None:
    opened = _after([("failed", 0)] * 3)[0]
    assert opened.until is not None
    tried = begun(opened, now=opened.until)

    assert not may_try(tried, now=opened.until + POLICY.trial_within - timedelta(seconds=1))
    assert may_try(tried, now=opened.until + POLICY.trial_within)
    assert replace(tried, trial_since=None) != tried
