"""A PostgreSQL to do harm to; and a platform on the fake backend with a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.clusters import Cluster, running_cluster
from tests.support.postgres import why_no_postgres
from tests.support.sandboxes import backend, clock, open_one

__all__ = ["backend", "clock", "cluster", "open_one"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL of this test's own, to do harm to."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running_cluster() as running:
        yield running
