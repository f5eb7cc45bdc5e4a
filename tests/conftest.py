"""Fixtures every room's tests use: a store on each database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.store.engine import Store, open_store
from tests.servers.postgres import postgres_cluster, postgres_url

__all__ = ["postgres_cluster", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of its own for each test, on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sandboxer.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = open_store(database_url)
    try:
        yield opened
    finally:
        await opened.close()
