"""What happens to one sandbox is looked at for its own account: nobody else's sandboxes are walked over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.loops import timer as timers
from sandboxer.sandboxes.loops.credit import CreditLoop
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import SandboxRepository, Step
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, BOB, OpenPlatform, pass_time, state_of


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks that walked over the sandboxes of all accounts."""
    found: list[str] = []
    living = SandboxRepository.living

    def watched(self: SandboxRepository, *account: str) -> Iterator[Sandbox]:
        if not account:
            task = asyncio.current_task()
            found.append("none" if task is None else task.get_name())
        return living(self, *account)

    monkeypatch.setattr(SandboxRepository, "living", watched)
    return found


async def make(platform: Platform, caller: Caller, ttl: str = "1h") -> Sandbox:
    return await creation.create(platform.sandboxes, CreateRequest(ttl=ttl), caller)


async def test_living_ones_are_known_by_account(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        hers, his = await make(platform, ALICE), await make(platform, BOB)
        repository = platform.sandboxes.repository
        assert [one.id for one in repository.living("alice")] == [hers.id]
        await lifetime.destroy(platform.sandboxes, hers.id, ALICE)
        assert not list(repository.living("alice"))
        assert [one.id for one in repository.living("bob")] == [his.id]
        assert not list(repository.living("nobody"))


async def test_the_end_of_one_is_no_walk_over_all(
    open_one: OpenPlatform, clock: ManualClock, walks: list[str]
) -> None:
    """The timer walked twice over all for each: 20 ms of the processor beside 10,000."""
    async with open_one() as platform:
        later = await make(platform, BOB)
        soon = [await make(platform, ALICE, ttl) for ttl in ("1m", "2m", "3m")]
        walks.clear()
        await pass_time(clock, timedelta(minutes=4), timedelta(seconds=20))
        for sandbox in soon:
            async with asyncio.timeout(10):
                while state_of(platform, sandbox.id) is not State.DESTROYED:
                    await pass_time(clock, timedelta(seconds=1), timedelta(seconds=1))
        assert state_of(platform, later.id) is State.READY
        assert "timer" not in walks


async def test_what_ends_sooner_than_was_planned_is_ended_then(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one() as platform:
        sandbox = await make(platform, ALICE)
        await platform.sandboxes.repository.amend(
            sandbox.id,
            kind="sandbox.extended",
            actor="test",
            reason="test",
            decide=lambda one: {"expires_at": clock.now() + timedelta(seconds=30)},
        )
        await pass_time(clock, timedelta(seconds=40), timedelta(seconds=5))
        async with asyncio.timeout(10):
            while state_of(platform, sandbox.id) is not State.DESTROYED:
                await pass_time(clock, timedelta(seconds=1), timedelta(seconds=1))


class TickingClock(ManualClock):
    """Is later each time that it is read, as a real one is."""

    def now(self) -> datetime:
        self._now += timedelta(microseconds=1)
        return self._now


async def test_what_expired_before_a_start_is_removed_by_a_clock_that_ticks(
    tmp_path: Path, database_url: str
) -> None:
    """A start records that their time was over, and leaves the rest to the timer: for which they were due a
    microsecond after each of its looks, for ever.
    """
    clock = TickingClock()
    on = Scripted(name="ext.namespaces", clock=clock)
    settings = Settings(state_dir=tmp_path / "state", database=database_url, charging=False)
    async with open_platform(settings, clock=clock, backends={on.name: on}) as platform:
        sandbox = await make(platform, ALICE, "1m")
        await platform.sandboxes.repository.move(
            sandbox.id, Step(signal=Signal.EXPIRE, actor="test", reason="ttl")
        )
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)


async def test_what_was_destroyed_long_before_its_time_does_not_stay_in_the_queue(
    open_one: OpenPlatform,
) -> None:
    async with open_one() as platform:
        sandbox, timer = await make(platform, ALICE), timers.Timer(platform.sandboxes)
        for number in range(3 * timers.MOST_STALE):
            # Each change names a sooner end, so that the queue has one entry more.
            assert sandbox.expires_at is not None
            sooner = sandbox.expires_at - timedelta(milliseconds=number)
            timer._planned[sandbox.id] = sooner
            timer._queue.append((sooner, sandbox.id))
        timer._planned.pop(sandbox.id)
        timer._plan(sandbox)
        assert len(timer._queue) == 1


async def test_a_payment_is_no_walk_over_all(open_one: OpenPlatform, walks: list[str]) -> None:
    async with open_one() as platform:
        for caller in (ALICE, BOB):
            await make(platform, caller)
        loop = CreditLoop(platform.sandboxes, platform.store)
        await loop._round()
        walks.clear()
        loop._hear(frozenset({"alice", "money.due"}))
        await loop._round()
        assert asyncio.current_task().get_name() not in walks  # type: ignore[union-attr]
