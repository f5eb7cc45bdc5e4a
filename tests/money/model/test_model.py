"""Random schedules on both databases: a chain that lies, a clock that jumps, a server that dies.

The gate plays a known row of schedules; the slow and long rings play fresh ones, until the oracle has been
quiet on them for long enough that fresh ones can be in the gate.

`SANDBOXER_TEST_SEED=n` begins with schedule n instead of a random one; a schedule that fails prints its seed
and what was done. `SANDBOXER_MODEL_SECONDS=n` plays for n seconds on each database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import Counter

import pytest

from tests.money.model.play import LIVES, PLAY
from tests.money.model.schedule import Play, Report, run_schedule

GATE = range(1, 9)
SLOW_S = 240.0
LONG_S = 3300.0


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Servers that are killed, chains that lie: all of it is logged, hundreds of times."""
    logging.getLogger("sandboxer").setLevel(logging.CRITICAL)


def play_for(seconds: float, database: pytest.FixtureRequest, kind: str, play: Play) -> None:
    seconds = float(os.environ.get("SANDBOXER_MODEL_SECONDS", seconds))
    seed = first = int(os.environ.get("SANDBOXER_TEST_SEED", secrets.randbelow(10**9)))
    print(f"\n{kind}: schedules from seed {first} on")
    pairs: Counter[tuple[str, str]] = Counter()
    ends = time.monotonic() + seconds
    abandoned = []
    while time.monotonic() < ends:
        report = play_one(seed, database, kind, play)
        pairs += report.pairs
        abandoned += [seed] if report.is_abandoned else []
        seed += 1
    if abandoned:
        print(f"{kind}: took too long and were left: {abandoned}")
    print(f"{kind}: {seed - first} schedules, {sum(pairs.values())} steps, {len(pairs)} pairs covered:")
    for state, acts in sorted(_by_state(pairs).items()):
        print(f"  {state}: " + ", ".join(f"{act} {number}" for act, number in sorted(acts.items())))


def play_one(seed: int, request: pytest.FixtureRequest, kind: str, play: Play) -> Report:
    if kind == "sqlite":
        return asyncio.run(run_schedule(seed, play))
    databases = request.getfixturevalue("postgres_databases")
    name = databases.take()
    try:
        return asyncio.run(run_schedule(seed, play, database=databases.url(name)))
    finally:
        databases.give_back(name)


def _by_state(pairs: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (state, act), number in pairs.items():
        found.setdefault(state, {})[act] = number
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_sat_is_accounted_for_after_each_step_of_any_schedule(
    kind: str, request: pytest.FixtureRequest
) -> None:
    for seed in GATE:
        play_one(seed, request, kind, LIVES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_sat_is_accounted_for_in_fresh_schedules(kind: str, request: pytest.FixtureRequest) -> None:
    play_for(SLOW_S, request, kind, LIVES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_sat_is_accounted_for_while_chains_lie_and_facilitators_too(
    kind: str, request: pytest.FixtureRequest
) -> None:
    play_for(SLOW_S, request, kind, PLAY)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_sat_is_accounted_for_in_an_hour_of_schedules(
    kind: str, request: pytest.FixtureRequest
) -> None:
    play_for(LONG_S, request, kind, PLAY)
