"""Scenes that once went wrong, or that the oracle took for wrong: each is one act, played from many seeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.money.model import scenarios
from tests.money.model.play import PLAY
from tests.money.model.schedule import Act, run_schedule

SEEDS = 6


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="sandboxer")


def play(acts: Mapping[str, tuple[int, Act]], *, steps: int = 1) -> None:
    """Raises Broken. One that takes too long on a busy machine is left, and counts as played."""
    for seed in range(SEEDS):
        asyncio.run(run_schedule(seed, replace(PLAY, acts=acts), steps=steps))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["node_takes_another_branch", "node_forgets_what_has_expired"])
def test_a_node_that_lies_for_a_while_costs_nobody_a_payment(name: str) -> None:
    play({name: scenarios.ACTS[name]})
