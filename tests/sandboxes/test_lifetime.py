"""TTL, idle time and retention: one timer, no scanning, and nothing ends too early."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from sandboxer.backends.guest import Command
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Forbidden, IllegalTransition, InvalidRequest
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime, pause
from sandboxer.sandboxes.use_cases.access import RESIDENT_TAG, open_line
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform, pass_time, state_of


async def test_a_sandbox_ends_when_its_ttl_is_over_and_not_before(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
        await pass_time(clock, timedelta(seconds=29), timedelta(seconds=29))
        assert state_of(platform, sandbox.id) is State.READY
        clock.advance(timedelta(seconds=1))
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)
        assert not backend.boxes
        events = [(e.kind, e.actor, e.reason) for e in await platform.events.page(sandbox.id)][-3:]
        assert events == [
            ("sandbox.expired", "system:timer", "ttl"),
            ("sandbox.destroying", "system:timer", "ttl"),
            ("sandbox.destroyed", "system:timer", "ttl"),
        ]


async def test_a_sandbox_with_a_shorter_ttl_wakes_the_timer_earlier(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one() as platform:
        long = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await eventually(clock.sleepers)
        short = await creation.create(platform.sandboxes, CreateRequest(ttl="5s"), ALICE)
        await asyncio.sleep(0.02)
        clock.advance(timedelta(seconds=5))
        await eventually(lambda: state_of(platform, short.id) is State.DESTROYED)
        assert state_of(platform, long.id) is State.READY


async def test_ttl_goes_on_while_frozen(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
        await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        await eventually(clock.sleepers)
        clock.advance(timedelta(seconds=30))
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)


async def test_a_stopped_sandbox_is_kept_for_the_retention_time(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one(retention="2d") as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        await pass_time(clock, timedelta(days=1), timedelta(days=1))
        assert state_of(platform, sandbox.id) is State.STOPPED
        await pass_time(clock, timedelta(days=1), timedelta(days=1))
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)


async def test_an_extension_adds_to_the_expiry_and_stays_within_the_profile_s_maximum(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        clock.advance(timedelta(hours=1))
        longer = await lifetime.change_ttl(platform.sandboxes, sandbox.id, "2h", ALICE)
        assert sandbox.ready_at is not None
        assert longer.expires_at == sandbox.ready_at + timedelta(hours=6)
        with pytest.raises(InvalidRequest, match="at most 18h can be added"):
            await lifetime.change_ttl(platform.sandboxes, sandbox.id, "19h", ALICE)
        assert (await lifetime.change_ttl(platform.sandboxes, sandbox.id, "18h", ALICE)).ttl == timedelta(
            hours=24
        )
        event = (await platform.events.page(sandbox.id))[-1]
        assert (event.kind, event.reason) == ("sandbox.ttl_extended", "extended by 18h")


async def test_a_destroyed_sandbox_cannot_be_extended(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        with pytest.raises(IllegalTransition):
            await lifetime.change_ttl(platform.sandboxes, sandbox.id, "1h", ALICE)


async def test_an_idle_sandbox_ends_with_reason_idle(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(idle_timeout="60s"), ALICE)
        await pass_time(clock, timedelta(seconds=55), timedelta(seconds=5))
        assert state_of(platform, sandbox.id) is State.READY
        await pass_time(clock, timedelta(seconds=10), timedelta(seconds=5))
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)
        assert "idle" in [event.reason for event in await platform.events.page(sandbox.id)]


async def test_an_open_line_keeps_a_sandbox_from_being_idle(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(idle_timeout="60s"), ALICE)
        async with open_line(platform.sandboxes, sandbox.id, ALICE, activity="terminal"):
            await pass_time(clock, timedelta(seconds=300), timedelta(seconds=20))
            assert state_of(platform, sandbox.id) in (State.READY, State.ACTIVE)
        await pass_time(clock, timedelta(seconds=50), timedelta(seconds=10))
        assert state_of(platform, sandbox.id) in (State.READY, State.ACTIVE)
        await pass_time(clock, timedelta(seconds=40), timedelta(seconds=10))
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)


async def test_moving_cpu_time_keeps_a_sandbox_from_being_idle(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(idle_timeout="60s"), ALICE)
        for _ in range(30):
            backend.boxes[sandbox.id].cpu_s += 5
            await pass_time(clock, timedelta(seconds=10), timedelta(seconds=10))
        assert state_of(platform, sandbox.id) is State.READY
        await pass_time(clock, timedelta(seconds=150), timedelta(seconds=10))
        await eventually(lambda: state_of(platform, sandbox.id) is State.DESTROYED)


@pytest.mark.parametrize(("tag", "is_idle"), [("", False), (RESIDENT_TAG, True)])
async def test_a_background_command_is_work_and_a_resident_that_waits_is_not(
    open_one: OpenPlatform, clock: ManualClock, tag: str, is_idle: bool
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(idle_timeout="60s"), ALICE)
        async with (
            open_line(platform.sandboxes, sandbox.id, ALICE, activity="processes") as guest,
            await guest.run(Command(argv=("sleep", "100000"), tag=tag)),
        ):
            pass
        await pass_time(clock, timedelta(seconds=400), timedelta(seconds=10))
        assert (state_of(platform, sandbox.id) is State.DESTROYED) == is_idle


async def test_idle_time_does_not_count_while_frozen(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(idle_timeout="60s"), ALICE)
        await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        await pass_time(clock, timedelta(seconds=600), timedelta(seconds=60))
        assert state_of(platform, sandbox.id) is State.FROZEN
        await pause.thaw(platform.sandboxes, sandbox.id, ALICE)
        await pass_time(clock, timedelta(seconds=50), timedelta(seconds=10))
        assert state_of(platform, sandbox.id) is State.READY


async def test_expire_only_looks_unless_told_to_apply(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
        with pytest.raises(Forbidden):
            await lifetime.expire(platform.sandboxes, ALICE)
        assert (await lifetime.expire(platform.sandboxes, OWNER)).sandboxes == []
        # Past its time without the sleepers hearing of it, as after a suspended host.
        clock._now += timedelta(hours=1)
        seen = await lifetime.expire(platform.sandboxes, OWNER)
        assert not seen.is_applied
        assert [s.id for s in seen.sandboxes] == [sandbox.id]
        assert state_of(platform, sandbox.id) is State.READY
        ended = await lifetime.expire(platform.sandboxes, OWNER, apply=True)
        assert [s.state for s in ended.sandboxes] == [State.DESTROYED]


async def test_the_timer_sleeps_until_something_is_due(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        # No other loop sleeps for a prime number of seconds.
        made = [
            await creation.create(platform.sandboxes, CreateRequest(ttl=f"{seconds}s"), ALICE)
            for seconds in (13, 23, 11, 17, 19)
        ]
        ends = sorted(one.expires_at for one in made if one.expires_at is not None)

        def slept_for() -> list[datetime]:
            return [moment for moment in clock.slept_for() if moment in ends]

        # Once for all of them, however many there are; and after the first has ended, for the next.
        await eventually(lambda: slept_for() == ends[:1])
        clock.advance(timedelta(seconds=12))
        await eventually(lambda: slept_for() == ends[1:2])
