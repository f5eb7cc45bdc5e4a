"""kill -9 at any step of making, using and dropping what is kept: nothing half-made, leaked or lost."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from tests.artifacts.killer import NEVER, SEED, Killer
from tests.artifacts.victim import DEEDS
from tests.support.crash import dependencies, eventually, leftovers
from tests.support.real_backend import require_walls


def run(strikes: Iterable[tuple[str, int]]) -> int:
    """How many deeds were cut off."""
    deaths = 0
    with dependencies() as state:
        killer = Killer(state)
        for deed, at in strikes:
            deaths += killer.strike(deed, at)
        killer.strike(None, NEVER)
        assert eventually(lambda: leftovers(state)) == []
    return deaths


@pytest.mark.timeout(600)
def test_a_server_killed_in_the_middle_leaves_nothing_half_made_and_a_repeat_makes_one() -> None:
    require_walls()
    dice = random.Random(SEED)
    deeds = dice.sample(sorted(DEEDS), 4)
    assert run((deed, dice.randint(3, 9)) for deed in deeds) >= 3


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("deed", sorted(DEEDS))
def test_the_same_at_every_step_of(deed: str) -> None:
    require_walls()
    died = True

    def strikes() -> Iterator[tuple[str, int]]:
        at = 0
        while died:
            at += 1
            yield deed, at

    with dependencies() as state:
        killer = Killer(state)
        for deed_, at in strikes():
            died = killer.strike(deed_, at)
        assert at > 3, "hardly a step was taken"
        killer.strike(None, NEVER)
        assert eventually(lambda: leftovers(state)) == []
