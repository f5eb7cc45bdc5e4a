"""One local Stacks for a whole test run; tests use wallets of their own, so that they do not meet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testchains.stacks.local import LocalStacks, why_not


@pytest.fixture(scope="session")
def stacks() -> Iterator[LocalStacks]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    with LocalStacks() as local:
        yield local
