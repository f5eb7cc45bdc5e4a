"""kill -9 at any step of keeping what runs: nothing half-kept, leaked or standing still for ever."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from tests.artifacts.killer import NEVER, SEED, Killer
from tests.artifacts.memory_victim import DEEDS, serve
from tests.support.crash import dependencies, eventually, kill_everything, leftovers
from tests.support.oci import require_runtime

# Moments at which something was once left: it was being paused, or had ended and was still said to run.
FOUND = (("stop", 5), ("stop", 6), ("take", 12), ("resume", 12))


def run(strikes: Iterable[tuple[str, int]]) -> int:
    """How many deeds were cut off."""
    deaths = 0
    with dependencies() as state:
        try:
            killer = Killer(state, serve)
            for deed, at in strikes:
                deaths += killer.strike(deed, at)
            killer.strike(None, NEVER)
            assert eventually(lambda: leftovers(state / "oci")) == []
        finally:
            kill_everything(state / "oci")
    return deaths


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_server_killed_while_it_keeps_what_runs_leaves_nothing_half_kept() -> None:
    require_runtime("runsc")
    dice = random.Random(SEED)
    strikes = [(deed, dice.randint(2, 12)) for deed in sorted(DEEDS)]
    assert run([*strikes, *FOUND]) >= 8


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("deed", sorted(DEEDS))
def test_the_same_at_every_step_of(deed: str) -> None:
    require_runtime("runsc")

    def strikes(killer: Killer) -> Iterator[int]:
        at = 1
        while killer.strike(deed, at):
            yield at
            at += 1

    with dependencies() as state:
        try:
            killer = Killer(state, serve)
            assert max(strikes(killer)) > 3, "hardly a step was taken"
            killer.strike(None, NEVER)
            assert eventually(lambda: leftovers(state / "oci")) == []
        finally:
            kill_everything(state / "oci")
