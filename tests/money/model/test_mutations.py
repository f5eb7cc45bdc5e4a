"""Whether the model is worth anything: each mend is taken back, and it must find that.

The slow ring begins with a schedule that plays the act which is made for the mend, so it takes minutes; the
long ring takes rows of schedules that nobody has played.
"""

from __future__ import annotations

import logging
import os
import secrets

import pytest

from tests.money.model.mutations import MUTATIONS, Mutation
from tests.money.model.search import MOST, likely, search

mends = pytest.mark.parametrize("mutation", MUTATIONS, ids=[one.mend for one in MUTATIONS])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Servers that are killed, chains that lie: all of it is logged, hundreds of times."""
    caplog.set_level(logging.CRITICAL, logger="sandboxer")  # until the test ends, for others want to hear


def find(mutation: Mutation, first: int) -> None:
    print(f"\n{mutation.mend}: schedules from seed {first} on")
    found = search(mutation, first)
    assert found is not None, f"{mutation.mend}: {mutation.what}: not found in {MOST} schedules from {first}"
    print(f"{found.row()} {found.seconds:.0f} s, {found.alarms} false alarms")


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@mends
def test_a_mend_that_is_taken_back_is_found(mutation: Mutation) -> None:
    find(mutation, likely(mutation, 1))


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@mends
def test_a_mend_that_is_taken_back_is_found_in_a_fresh_row(mutation: Mutation) -> None:
    find(mutation, int(os.environ.get("SANDBOXER_TEST_SEED", secrets.randbelow(10**9))))
