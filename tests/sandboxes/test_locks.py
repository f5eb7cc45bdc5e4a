"""Locks against time, races and restarts: the disk of what is locked is kept until it is unlocked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Conflict, IllegalTransition
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, disks, lifetime, locks, pause
from sandboxer.sandboxes.use_cases.lifetime import remove
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OpenPlatform, pass_time, state_of

DAY = timedelta(days=1)


@pytest.mark.parametrize("before", ["ready", "frozen"])
async def test_a_locked_sandbox_is_stopped_at_its_end_and_its_disk_kept(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, before: str
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
        if before == "frozen":
            await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=31))
        await eventually(lambda: state_of(platform, sandbox.id) is State.STOPPED)
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).reason == "ttl_locked"
        # Long after the retention of others.
        await pass_time(clock, 90 * DAY, 30 * DAY)
        assert state_of(platform, sandbox.id) is State.STOPPED
    async with open_one() as platform:
        assert state_of(platform, sandbox.id) is State.STOPPED
        with pytest.raises(Conflict, match="TTL"):
            await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        await lifetime.change_ttl(platform.sandboxes, sandbox.id, "1m", ALICE)
        await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        assert state_of(platform, sandbox.id) is State.READY
        assert set(backend.boxes) == {sandbox.id}


async def test_an_idle_locked_sandbox_is_stopped_too(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(
            platform.sandboxes, CreateRequest(ttl="4h", idle_timeout="10m"), ALICE
        )
        await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        await pass_time(clock, timedelta(minutes=20), timedelta(minutes=2))
        await eventually(lambda: state_of(platform, sandbox.id) is State.STOPPED)


async def test_unlocking_begins_the_retention_anew(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one(retention="2d") as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        await pass_time(clock, 10 * DAY, 5 * DAY)
        await locks.unlock(platform.sandboxes, sandbox.id, ALICE)
        await pass_time(clock, DAY, DAY)
        assert state_of(platform, sandbox.id) is State.STOPPED
        clock.advance(2 * DAY)
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)


async def test_a_lock_that_comes_between_look_and_act_still_holds(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        locked = await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        assert locked.locked_at is not None
        with pytest.raises(Conflict) as refused:
            await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        assert refused.value.facts["reason"] == "locked"
        with pytest.raises(Conflict):
            await disks.recreate(platform.sandboxes, sandbox.id, ALICE)
        again = await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        assert (again.version, again.locked_at) == (locked.version, locked.locked_at)
        kinds = [event.kind for event in await platform.events.page(sandbox.id)]
        assert kinds.count("sandbox.locked") == 1
        assert (await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE, despite_lock=True)).state is (
            State.DESTROYED
        )


async def test_what_is_over_cannot_be_locked(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await remove(platform.sandboxes, sandbox, actor="test", reason="test")
        with pytest.raises(IllegalTransition):
            await locks.lock(platform.sandboxes, sandbox.id, ALICE)
