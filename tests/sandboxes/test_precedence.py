"""Who comes last on the processor: decided from what each account took, never from whose it is."""

from __future__ import annotations

import pytest

from sandboxer.sandboxes.loops.precedence import Precedence, PrecedenceBounds, heaviest

BOUNDS = PrecedenceBounds()


def test_who_has_no_sandbox_at_the_moment_and_takes_much_gives_way() -> None:
    """Whoever makes and removes them without pause."""
    precedence = Precedence(cores=2)
    for tenths in range(20):
        giving = precedence.decide({"churner": 0.08, "quiet": 0.001}, {"quiet"}, tenths / 10)
    assert giving == {"churner"}
    # And nobody because of one who only looks about, without a sandbox.
    precedence = Precedence(cores=2)
    for tenths in range(20):
        giving = precedence.decide({"works": 0.15, "looks": 0.001}, {"works"}, tenths / 10)
    assert not giving


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
        seconds = {name: cores / 10 for name, cores in used.items()}
        decided = precedence.decide(seconds, used.keys(), since + n / 10)
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


def test_an_account_without_a_sandbox_that_runs_gives_way_to_nobody_and_is_forgotten_in_the_end() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    looks(precedence, {"hog": 2.0, "quiet": 0.0}, since=10.0, count=20)
    assert looks(precedence, {"quiet": 0.01}, since=12.0, count=1) == set()
    assert not precedence.is_little(0.0, 0.25)
    looks(precedence, {"quiet": 0.01}, since=12.1, count=400)
    assert precedence.is_little(0.0, 0.25)
    assert looks(precedence, {"hog": 0.01, "quiet": 0.01}, since=52.1, count=1) == set()


@pytest.mark.parametrize("is_quiet_meanwhile", [False, True])
def test_who_freezes_all_of_its_sandboxes_for_a_moment_is_not_as_new_afterwards(
    is_quiet_meanwhile: bool,
) -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    # As much as the other one, at first: otherwise a single look would tell them apart.
    looks(precedence, {"hog": 2.0, "works": 0.5}, since=10.0, count=20)
    if is_quiet_meanwhile:
        precedence.nothing_much(12.2)
    else:
        looks(precedence, {"works": 0.5}, since=12.0, count=2)
    assert looks(precedence, {"hog": 0.5, "works": 0.5}, since=12.2, count=1) == {"hog"}


def test_what_was_had_before_a_freeze_counts_though_nothing_runs_when_it_is_looked_at() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    for n in range(20):
        precedence.decide({"hog": 0.18, "works": 0.04}, {"works"}, 10.1 + n / 10)
    assert precedence.decide({"hog": 0.0, "works": 0.04}, {"hog", "works"}, 12.1) == {"hog"}


def test_who_is_asked_is_looked_at_only_when_all_together_take_much_or_somebody_gives_way() -> None:
    precedence = Precedence(cores=2, bounds=BOUNDS)
    precedence.nothing_much(10.0)
    assert precedence.is_little(0.01, 0.25)
    assert not precedence.is_little(0.2, 0.25)
    looks(precedence, {"hog": 2.0, "quiet": 0.0}, since=10.0, count=10)
    assert not precedence.is_little(0.0, 0.25)
