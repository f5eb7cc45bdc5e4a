"""Who comes last on the processor: decided from what each account took, never from whose it is."""

from __future__ import annotations

import pytest

from sandboxer.sandboxes.precedence import Precedence, PrecedenceBounds, heaviest

BOUNDS = PrecedenceBounds()


@pytest.mark.parametrize(
    ("cores_of", "last"),
    [
        ({"alone": 2.0}, set()),
        ({"hog": 2.0, "quiet": 0.0}, {"hog"}),
        ({"hog": 1.5, "works": 0.3, "quiet": 0.0}, {"hog"}),
        # Two who take as much as each other give way to the third, and not to each other.
        ({"one": 0.9, "two": 0.8, "quiet": 0.1}, {"one", "two"}),
        ({"one": 0.9, "two": 0.8}, set()),
        # Many who take little each, and much together.
        ({"a": 0.03, "b": 0.03, "c": 0.03, "quiet": 0.0}, {"a", "b", "c"}),
        ({"a": 0.03, "quiet": 0.0}, set()),
        ({}, set()),
    ],
)
def test_those_who_take_most_give_way_down_to_the_first_gap(
    cores_of: dict[str, float], last: set[str]
) -> None:
    assert heaviest(cores_of, 2, BOUNDS) == last


def test_the_same_work_is_much_on_a_small_machine_and_little_on_a_large_one() -> None:
    cores_of = {"hog": 1.0, "quiet": 0.0}
    assert heaviest(cores_of, 2, BOUNDS) == {"hog"}
    assert heaviest(cores_of, 64, BOUNDS) == set()


def looks(precedence: Precedence, used: dict[str, float], *, since: float, count: int) -> frozenset[str]:
    """`count` looks, a tenth of a second apart; `used` in cores."""
    for n in range(1, count + 1):
        decided = precedence.decide({name: cores / 10 for name, cores in used.items()}, since + n / 10)
    return decided


def test_a_burst_is_no_reason_and_half_a_second_of_it_is() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    assert looks(precedence, {"hog": 0.3, "quiet": 0.0}, since=10.0, count=1) == set()
    assert looks(precedence, {"hog": 0.3, "quiet": 0.0}, since=10.1, count=4) == {"hog"}


def test_who_has_stopped_comes_last_for_a_while_and_then_as_everybody() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    looks(precedence, {"hog": 2.0, "quiet": 0.0}, since=10.0, count=20)
    assert looks(precedence, {"hog": 0.0, "quiet": 0.04}, since=12.0, count=30) == {"hog"}
    assert looks(precedence, {"hog": 0.0, "quiet": 0.04}, since=15.0, count=200) == set()


def test_who_gets_nothing_because_it_gives_way_does_not_come_first_for_that() -> None:
    """Another one takes a core for two seconds, and the hog finds next to nothing left."""
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    looks(precedence, {"hog": 2.0, "other": 0.0}, since=10.0, count=20)
    assert looks(precedence, {"hog": 0.05, "other": 1.0}, since=12.0, count=20) == {"hog"}


def test_two_who_both_want_everything_have_as_much_in_the_end() -> None:
    """One began two seconds before the other. Who does not give way gets what it wants, others the rest."""
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    last = looks(precedence, {"hog": 2.0, "other": 0.0, "quiet": 0.0}, since=10.0, count=20)
    had = dict.fromkeys(("hog", "other"), 0.0)
    for n in range(600):
        first = [one for one in had if one not in last] or list(had)
        got = {one: 2.0 / len(first) if one in first else 0.0 for one in had}
        had = {one: had[one] + got[one] / 10 for one in had}
        last = looks(precedence, {**got, "quiet": 0.0}, since=12.0 + n / 10, count=1)
    assert "quiet" not in last
    assert had["hog"] == pytest.approx(had["other"], rel=0.25)


def test_an_account_without_a_sandbox_that_runs_is_forgotten() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    looks(precedence, {"hog": 2.0, "quiet": 0.0}, since=10.0, count=20)
    assert looks(precedence, {"quiet": 0.1}, since=12.0, count=1) == set()


def test_who_is_asked_is_looked_at_only_when_all_together_take_much_or_somebody_gives_way() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    assert precedence.is_little(0.01, 0.25)
    assert not precedence.is_little(0.2, 0.25)
    looks(precedence, {"hog": 2.0, "quiet": 0.0}, since=10.0, count=10)
    assert not precedence.is_little(0.0, 0.25)
