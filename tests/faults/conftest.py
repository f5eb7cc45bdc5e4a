from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.clusters import Cluster, running_cluster
from tests.servers.postgres import why_no_postgres


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL of this test's own, to do harm to."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running_cluster() as running:
        yield running
