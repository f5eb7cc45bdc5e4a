"""Fixtures of this folder; they are made in `tests.support.walls`. Whatever attacks a sandbox attacks one of
each kind of wall: what differs behind gVisor is said in `behind_gvisor.py`, with its reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.namespaces import NamespacesBackend, NamespacesSettings
from tests.support.walls import (  # noqa: F401
    attacker,
    attacks,
    host_ready,
    make,
    neighbour,
    opened_walls,
    outside,
    settings,
)
from tests.walls import behind_gvisor

HERE = Path(__file__).parent
# `make test-slow` builds runsc first.
WALLS = ["namespaces", pytest.param("runsc", marks=pytest.mark.slow)]


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=WALLS)
async def backend(
    request: pytest.FixtureRequest,
    settings: NamespacesSettings,
) -> AsyncIterator[NamespacesBackend]:
    async with opened_walls(settings, request.param) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if item.path.parent != HERE or params.get("backend") != "runsc":
            continue
        if why := behind_gvisor.reason(f"{item.path.name}::{item.name}"):
            item.add_marker(pytest.mark.skip(reason=f"behind gVisor: {why}"))
