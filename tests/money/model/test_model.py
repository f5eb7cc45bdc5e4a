"""Random schedules on both databases: a chain that lies, a clock that jumps, a server that dies.

Nobody has played them before: the gate plays for a minute on each database, the long ring for an hour. The
run ends with the seed from which each began; a schedule that fails says all that was done, and the command
that plays it again. `SANDBOXER_TEST_SEED=n` begins with schedule n; `SANDBOXER_MODEL_SECONDS=n` plays for n
seconds on each database, and one schedule at least. Schedules of odd seeds have payments on chains that lie,
those of even seeds have none: in these, lives, budgets, clocks and deaths meet more often.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time

import pytest

from tests.money.model.covered import Pairs, described, unknown_acts
from tests.money.model.play import LIVES, PLAY
from tests.money.model.schedule import Broken, Report, run_schedule

GATE_S = 60.0
SLOW_S = 480.0
LONG_S = 3600.0
# Each took a minute, and nothing in it was wrong as far as it went.
MOST_ABANDONED = 3
ON_BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Servers that are killed, chains that lie: all of it is logged, hundreds of times."""
    caplog.set_level(logging.CRITICAL, logger="sandboxer")  # until the test ends, for others want to hear


def play_for(seconds: float, request: pytest.FixtureRequest, kind: str) -> None:
    seconds = float(os.environ.get("SANDBOXER_MODEL_SECONDS", seconds))
    seed = first = int(os.environ.get("SANDBOXER_TEST_SEED", secrets.randbelow(10**9)))
    print(f"\n{kind}: schedules from seed {first} on")
    pairs, abandoned = Pairs(), list[int]()
    ends = time.monotonic() + seconds
    try:
        # On a busy machine too, one at least is played to its end; unless it is too busy even for that.
        while time.monotonic() < ends or len(abandoned) == seed - first < MOST_ABANDONED:
            report = play_one(seed, request, kind)
            pairs += report.pairs
            abandoned += [seed] if report.is_abandoned else []
            seed += 1
    finally:
        left = f", took too long and were left: {abandoned}" if abandoned else ""
        request.node.user_properties.append(
            ("told", f"the money model, {kind}: {seed - first} schedules from seed {first} on{left}")
        )
    if len(abandoned) == seed - first:
        pytest.skip(f"the machine is too busy: none of the schedules {abandoned} came to its end")
    print(f"{kind}: {seed - first} schedules, {len(pairs)} pairs of a state and an act:")
    print("\n".join(described(pairs, with_missed=True)))


def play_one(seed: int, request: pytest.FixtureRequest, kind: str) -> Report:
    try:
        return _play(seed, request, kind)
    except Broken as broken:
        test = request.node.nodeid
        again = f'SANDBOXER_TEST_SEED={seed} SANDBOXER_MODEL_SECONDS=0 pytest "{test}" -m ""'
        raise Broken(f"{broken}\nTo play it again: {again}") from broken


def _play(seed: int, request: pytest.FixtureRequest, kind: str) -> Report:
    play = PLAY if seed % 2 else LIVES
    if kind == "sqlite":
        return asyncio.run(run_schedule(seed, play))
    databases = request.getfixturevalue("postgres_databases")
    name = databases.take()
    try:
        return asyncio.run(run_schedule(seed, play, database=databases.url(name)))
    finally:
        databases.give_back(name)


def test_the_table_of_what_was_covered_knows_every_act() -> None:
    assert unknown_acts() == []


@ON_BOTH
@pytest.mark.timeout(600)
def test_every_sat_is_accounted_for_in_a_minute_of_fresh_schedules(
    kind: str, request: pytest.FixtureRequest
) -> None:
    play_for(GATE_S, request, kind)


@ON_BOTH
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_sat_is_accounted_for_in_minutes_of_schedules(
    kind: str, request: pytest.FixtureRequest
) -> None:
    play_for(SLOW_S, request, kind)


@ON_BOTH
@pytest.mark.long
@pytest.mark.timeout(4500)
def test_every_sat_is_accounted_for_in_an_hour_of_schedules(
    kind: str, request: pytest.FixtureRequest
) -> None:
    play_for(LONG_S, request, kind)
