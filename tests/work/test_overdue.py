"""Time limits of background processes hold whatever happened meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, pause
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from sandboxer.work.lines import Wanted
from tests.support.clock import ManualClock

OWNER = Caller(public_key="sbx-pk-test", account="owner", is_owner=True)


async def test_a_limit_holds_in_a_sandbox_that_was_frozen_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    backend = Scripted(name="ext.namespaces", clock=clock)

    def start() -> AbstractAsyncContextManager[Platform]:
        return open_platform(Settings(state_dir=tmp_path), clock=clock, backends={"ext.namespaces": backend})

    async with start() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), OWNER)
        begun = await platform.work.processes.start(
            sandbox.id, OWNER, Wanted(argv=["sleep", "100000"]), timeout_s=60
        )
        await pause.freeze(platform.sandboxes, sandbox.id, OWNER)
    async with start() as platform:
        clock.advance(timedelta(seconds=61))
        await pause.thaw(platform.sandboxes, sandbox.id, OWNER)
        async with asyncio.timeout(10):
            while (seen := await _look(platform, sandbox.id, begun.process_id)) is None:
                clock.advance(timedelta(seconds=5))
                await asyncio.sleep(0.01)
        assert seen == "timed_out"


async def test_trouble_with_one_sandbox_does_not_end_the_limits_of_others(tmp_path: Path) -> None:
    clock = ManualClock()
    backend = Scripted(name="ext.namespaces", clock=clock)
    async with open_platform(
        Settings(state_dir=tmp_path), clock=clock, backends={"ext.namespaces": backend}
    ) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), OWNER)
        begun = await platform.work.processes.start(
            sandbox.id, OWNER, Wanted(argv=["sleep", "100000"]), timeout_s=60
        )
        # In a way that nobody foresaw.
        backend.fail_next("guest", OSError("no descriptors left"))
        clock.advance(timedelta(seconds=61))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            while await _look(platform, sandbox.id, begun.process_id) is None:
                clock.advance(timedelta(seconds=5))
                await asyncio.sleep(0.01)


async def _look(platform: Platform, sandbox_id: str, process_id: str) -> str | None:
    info = await platform.work.processes.get(sandbox_id, OWNER, process_id)
    return None if info.exit is None else str(info.exit.reason)
