"""What a customer pays when nobody was there: the server was down, the host rebooted, the database restored.

The platform is the real one, on the scripted backend and a clock that only the test moves.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from sandboxer.accounts.caps import Caps
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Forbidden
from sandboxer.sandboxes.charging import spent_sats
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, cap, due_times, fund, paying, settled, until
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OpenPlatform

# 100 sats a second, as in the report: sums that grow quickly.
FAST = {**RATES, "running_msats": 100_000}


@pytest.mark.parametrize("down", [timedelta(seconds=149), timedelta(hours=20)])
async def test_a_server_that_was_down_makes_no_debt(
    open_one: OpenPlatform, clock: ManualClock, down: timedelta
) -> None:
    async with paying(open_one, sats=3000, rates=FAST) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        clock.advance(timedelta(seconds=10))
    clock.advance(down)
    async with paying(open_one, rates=FAST) as platform:
        # What was paid in was used up while the sandbox lived; nothing beyond is owed yet.
        bucket = await settled(platform)
        assert (bucket.posted, bucket.debt) == (0, 0)
        # The grace it has earned, three seconds, begins now that somebody could pay.
        clock.advance(timedelta(hours=1))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        assert (await settled(platform)).debt == 300


async def test_who_pays_while_the_grace_after_a_downtime_lasts_goes_on(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=3000, rates=FAST) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        clock.advance(timedelta(seconds=10))
    clock.advance(timedelta(hours=5))
    async with paying(open_one, rates=FAST) as platform:
        await due_times(platform)
        clock.advance(timedelta(seconds=2))
        await fund(platform, 10_000, id="second")
        await until(platform, sandbox.id, State.READY)
        assert (await settled(platform)).posted == 10_000 - 200


async def test_a_dry_moment_noticed_late_is_charged_until_the_grace_it_had_earned(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=3000, rates=FAST) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        # The server stands still for an hour, and nothing of it was seen as a downtime.
        clock.advance(timedelta(hours=1))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        bucket = await settled(platform)
        assert (bucket.posted, bucket.debt) == (0, 300)


async def test_nothing_is_owed_for_a_disk_after_its_account_was_reaped(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    rates = {**FAST, "stored_disk_gb_msats": 1000}
    async with paying(open_one, sats=3000, rates=rates) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(minutes=1))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        clock.advance(timedelta(days=20))
        assert (await settled(platform)).debt == 300


@pytest.mark.parametrize("how", ["reboot", "gone"])
async def test_a_sandbox_that_died_unseen_pays_until_it_was_last_witnessed_alive(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, how: str
) -> None:
    async with paying(open_one, sats=10_000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=8))
    if how == "reboot":
        backend.reboot()
    else:
        # A database was put back whose sandboxes are no more.
        backend.boxes.clear()
    clock.advance(timedelta(seconds=44))
    async with paying(open_one) as platform:
        found = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert found.state is (State.STOPPED if how == "reboot" else State.FAILED)
        assert (await settled(platform)).posted == 10_000 - 8


async def test_the_dead_pay_until_they_were_seen_though_the_living_ran_dry_meanwhile(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with paying(open_one, sats=100_000, rates=FAST) as platform:
        dead = await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        clock.advance(timedelta(seconds=10))
    del backend.boxes[dead.id]
    clock.advance(timedelta(hours=1))
    async with paying(open_one, rates=FAST) as platform:
        now = clock.now()
        record = await platform.sandboxes.visible(dead.id, ALICE)
        assert await platform.store.read(lambda conn: spent_sats(conn, record, now=now)) == 1000
        bucket = await settled(platform)
        assert (bucket.posted, bucket.debt) == (0, 0)


async def test_a_ttl_that_ended_while_the_server_was_down_ends_the_charge(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=100_000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE)
    clock.advance(timedelta(hours=5))
    async with paying(open_one) as platform:
        await until_gone(platform, sandbox.id)
        assert (await settled(platform)).posted == 100_000 - 3600


async def until_gone(platform: Platform, sandbox_id: str) -> None:
    await eventually(lambda: platform.sandboxes.repository.peek(sandbox_id) is None)


async def test_spent_sats_are_those_that_the_ledger_took(open_one: OpenPlatform, clock: ManualClock) -> None:
    # At this rate no microsecond ends at a whole sat.
    async with paying(open_one, sats=10_000, rates={**RATES, "running_msats": 1237}) as platform:
        await cap(platform, Caps(per_sandbox_sats=7))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await planned_somewhen(platform)
        clock.advance(timedelta(hours=1))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        now = clock.now()
        record = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert await platform.store.read(lambda conn: spent_sats(conn, record, now=now)) == 7
        assert (await settled(platform)).posted == 10_000 - 7
        with pytest.raises(Forbidden) as refused:
            await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        assert refused.value.facts["spent_sats"] == 7


async def planned_somewhen(platform: Platform) -> None:
    while (await settled(platform)).look_at is None:
        pass
