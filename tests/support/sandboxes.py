"""A platform on a fake backend and a clock that stands still, on each database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.use_cases import boosts, disks, inspection, lifetime, pause
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.support.clock import ManualClock

OWNER = Caller(public_key="sbx-pk-owner", account="owner", is_owner=True)
ALICE = Caller(public_key="sbx-pk-alice", account="alice")
BOB = Caller(public_key="sbx-pk-bob", account="bob")

# Acts that a caller may ask for by name, of a sandbox that is named.
ACTS: dict[str, Callable[[SandboxDependencies, str, Caller], Awaitable[Any]]] = {
    act.__name__: act
    for act in (
        SandboxDependencies.visible,
        boosts.unboost,
        disks.recreate,
        inspection.reachability,
        inspection.usage,
        lifetime.destroy,
        pause.freeze,
        pause.resume,
        pause.stop,
        pause.thaw,
    )
}

OpenPlatform = Callable[..., AbstractAsyncContextManager[Platform]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def backend(clock: ManualClock) -> Scripted:
    # Under the name that the shipped profiles ask for.
    return Scripted(name="ext.namespaces", clock=clock)


@pytest.fixture
def open_one(tmp_path: Path, database_url: str, clock: ManualClock, backend: Scripted) -> OpenPlatform:
    """Open the platform; again after leaving, as a restart of the server would."""

    def start(*, on: Scripted = backend, **settings: object) -> AbstractAsyncContextManager[Platform]:
        chosen = Settings.model_validate(
            # Most tests here are not about money: strangers get sandboxes for nothing.
            {"state_dir": tmp_path / "state", "database": database_url, "charging": False, **settings}
        )
        return open_platform(chosen, clock=clock, backends={on.name: on})

    return start


async def pass_time(clock: ManualClock, total: timedelta, step: timedelta) -> None:
    """Move the clock in steps, and let everything that wakes have its turn in between."""
    passed = timedelta(0)
    while passed < total:
        await asyncio.sleep(0.01)
        clock.advance(step)
        passed += step
    await asyncio.sleep(0.01)


def state_of(platform: Platform, sandbox_id: str) -> State:
    sandbox = platform.sandboxes.repository.peek(sandbox_id)
    return State.DESTROYED if sandbox is None else sandbox.state
