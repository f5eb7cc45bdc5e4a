"""kill -9 at any step of making, using and dropping what is kept: nothing half-made, leaked or lost."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts.victim import DEEDS, Facts, Round, serve
from tests.support.crash import dependencies, eventually, leftovers
from tests.support.real_backend import require_walls

SEED = int(os.environ.get("SANDBOXER_TEST_SEED", "1"))
# More steps than any deed has.
NEVER = 10_000

_servers = multiprocessing.get_context("forkserver")
_servers.set_forkserver_preload(["tests.artifacts.victim", "tests.artifacts.memory_victim"])


class Killer:
    """Starts one server after the other on the same state folder."""

    def __init__(self, state: Path, serve: Callable[[Round, Connection], None] = serve) -> None:
        self._state = state
        self._serve = serve
        self._number = 0
        self._facts: Facts | None = None
        self._last: tuple[str, int, Facts] | None = None

    def strike(self, deed: str | None, at: int) -> bool:
        """Whether it died before the deed was done."""
        self._number += 1
        plan = Round(self._state, self._number, deed, at, self._facts, self._last)
        near, far = _servers.Pipe()
        process = _servers.Process(target=self._serve, args=(plan, far))
        process.start()
        far.close()
        try:
            self._facts = hear(near, "audited", plan)
            if deed is None:
                hear(near, "cleared", plan)
                process.join(60)
                return False
            self._last = (deed, self._number, hear(near, "lit", plan))
            return heard(near) is None
        finally:
            process.kill()
            process.join(30)
            near.close()


def heard(pipe: Connection) -> Any:
    """None: it died."""
    assert pipe.poll(120), "neither done nor dead"
    try:
        return pipe.recv()
    except EOFError:
        return None


def hear(pipe: Connection, word: str, plan: Round) -> Facts:
    said = heard(pipe)
    assert said is not None, f"it died by itself: {plan}"
    assert said[:2] == (word, []), f"{said[1]} after {plan.last}"
    facts: Facts = said[2]
    return facts


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
