"""Whether the model is worth anything: each mend is taken back, and it must find that."""

from __future__ import annotations

import asyncio
import logging
import os
import time

import pytest

from tests.money.model.mutations import MUTATIONS, Mutation
from tests.money.model.play import PLAY
from tests.money.model.schedule import Broken, run_schedule

SCHEDULES = 2000
FIRST = 1


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[one.mend for one in MUTATIONS])
def test_a_mend_that_is_taken_back_is_found(mutation: Mutation) -> None:
    logging.getLogger("sandboxer").setLevel(logging.CRITICAL)
    first = int(os.environ.get("SANDBOXER_TEST_SEED", FIRST))
    began = time.monotonic()
    with mutation.applied():
        for number in range(SCHEDULES):
            try:
                asyncio.run(run_schedule(first + number, PLAY))
            except Broken as found:
                took = time.monotonic() - began
                print(f"\n{mutation.mend}: {mutation.what}: found by schedule {number + 1} in {took:.0f} s")
                print(f"  {found}".partition("\n")[0])
                return
    pytest.fail(f"{mutation.mend}: {mutation.what}: not found in {SCHEDULES} schedules")
