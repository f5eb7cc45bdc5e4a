"""What proves that a payment is gone, and what does not: every combination, without a chain."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from sandboxer.payments.settlement import HEAD_KEPT_FOR, Memory, Verdict, agreed, head_after, is_proof, judge
from sandboxer.payments.x402.ways import Fate, Sighting

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SIGHTINGS = [
    Sighting(fate=fate, head=head, is_block_there=there, is_spent_otherwise=spent)
    for fate, head, there, spent in itertools.product(
        Fate, (None, 99, 100, 112), (None, False, True), (False, True)
    )
]


@pytest.mark.parametrize("missed_at", [None, 100])
def test_only_a_denial_from_a_head_no_lower_than_the_last_one_seen_counts(missed_at: int | None) -> None:
    memory = Memory(head=100, missed_at=missed_at)
    for seen in SIGHTINGS:
        is_denied = seen.fate not in (Fate.CONFIRMED, Fate.UNKNOWN) and seen.is_block_there is not True
        is_high = seen.head is not None and seen.head >= 100
        verdict = judge(seen, memory, blocks=12)
        if not (is_denied and is_high):
            assert verdict is Verdict.KEEP
        elif missed_at is None:
            assert verdict is Verdict.DOUBT
        else:
            is_enough = seen.is_spent_otherwise or seen.head == 112
            assert verdict is (Verdict.TAKE_BACK if is_enough else Verdict.KEEP)


def test_nothing_is_taken_back_at_first_sight() -> None:
    verdicts = {judge(seen, Memory(head=0), blocks=1) for seen in SIGHTINGS}
    assert verdicts == {Verdict.KEEP, Verdict.DOUBT}


def test_what_two_nodes_say_is_proof_only_if_each_of_them_proves_it() -> None:
    for first, second in itertools.product(SIGHTINGS, SIGHTINGS):
        both = agreed(first, second)
        if is_proof(both, 100):
            assert is_proof(first, 100)
            assert is_proof(second, 100)
            assert both.head == min(first.head or 0, second.head or 0)
            assert both.is_spent_otherwise == (first.is_spent_otherwise and second.is_spent_otherwise)
            if first.is_block_there or second.is_block_there:
                assert judge(both, Memory(head=100, missed_at=1), blocks=1) is Verdict.KEEP
        if Fate.CONFIRMED in (first.fate, second.fate):
            assert both.fate is Fate.CONFIRMED


def test_a_head_is_remembered_until_nobody_shows_it_for_a_day() -> None:
    assert head_after(None, None, 7, now=NOW) == 7
    assert head_after(7, NOW, 9, now=NOW) == 9
    assert head_after(10**12, NOW, 9, now=NOW + timedelta(hours=23)) == 10**12
    assert head_after(10**12, NOW, 9, now=NOW + HEAD_KEPT_FOR) == 9
