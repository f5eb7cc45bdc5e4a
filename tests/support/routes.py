"""A platform before several fake backends, and what it costs on each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.contract import Backend
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import ProvisionFailed
from sandboxer.money.verification import verify
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.support.clock import ManualClock

FIRST, SECOND = "ext.namespaces", "ext.second"
FALLBACK = {"fallback": {"profile.agent-dev": [SECOND]}}
BROKEN = ProvisionFailed(step="boot", why="it has no machine left")
PAID: Mapping[str, Any] = {
    "charging": True,
    "routing": FALLBACK,
    "fixed_rates": {"BTC": "100000"},
}
Open = Callable[..., Any]


@pytest.fixture
def open_with(tmp_path: Path, database_url: str, clock: ManualClock) -> Open:
    @asynccontextmanager
    async def start(*backends: Backend, **settings: object) -> AsyncIterator[Platform]:
        chosen = Settings.model_validate(
            {"state_dir": tmp_path / "state", "database": database_url, "charging": False, **settings}
        )
        opened = {one.name: one for one in backends}
        async with open_platform(chosen, clock=clock, backends=opened) as platform:
            yield platform
            assert (proof := await platform.store.read(verify)).is_whole, proof

    return start


def failing(name: str, *errors: Exception | None, **more: Any) -> Scripted:
    return Scripted(name=name, fail_on={"provision": list(errors)}, **more)
