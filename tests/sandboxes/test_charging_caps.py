"""A spending cap holds to the sat, whenever we notice that it was reached; a budget has no grace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from sandboxer.accounts import records as accounts
from sandboxer.accounts.authority import ALL_SCOPES
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.delegation import Cut, cut, top_up
from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, Forbidden, InsufficientCredit, Unavailable
from sandboxer.money.metering import charge_once
from sandboxer.money.policy import Standing, Use
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, cap, due_times, fund, paying, settled, until
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OpenPlatform

STORED = {**RATES, "stored_disk_gb_msats": 1000}
CHILD = Caller(public_key="sbx-pk-" + "c" * 26, account="acc_child")


async def planned(platform: Platform, delay: timedelta) -> None:
    """Until the purse has told the timer that the next cap is reached then."""
    moment = platform.clock.now() + delay
    deadline = asyncio.get_running_loop().time() + 5
    while (await settled(platform)).look_at != moment:
        assert asyncio.get_running_loop().time() < deadline, "the purse never planned it"


def grow_deaf(backend: Scripted) -> None:
    """It obeys no order to stop."""
    for _ in range(1000):
        backend.fail_next("stop", BackendLost(why="it is deaf"))


async def charged_at(platform: Platform, rate: int) -> None:
    """Until all of Alice's together cost so many msats a second."""
    deadline = asyncio.get_running_loop().time() + 5
    while (await settled(platform)).flow.rate != rate:
        assert asyncio.get_running_loop().time() < deadline, f"she never paid {rate}"


@pytest.mark.parametrize("name", ["per_key_sats", "per_sandbox_sats", "per_day_sats"])
async def test_a_running_sandbox_is_stopped_when_its_cap_is_reached(
    open_one: OpenPlatform, clock: ManualClock, name: str
) -> None:
    async with paying(open_one, sats=10_000, rates=STORED) as platform:
        await cap(platform, Caps(**{name: 100}))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await planned(platform, timedelta(seconds=100))
        assert (await settled(platform)).due_at == clock.now() + timedelta(seconds=100)
        clock.advance(timedelta(seconds=100))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        (event,) = [e for e in await platform.events.page(sandbox.id) if e.kind == "sandbox.reaped"]
        assert (event.reason, event.data["cap"], event.data["limit_sats"]) == ("spending_cap", name, 100)
        # Its disk has a price, and is kept without: a day's cap is new tomorrow, the others never.
        clock.advance(timedelta(hours=5))
        bucket = await settled(platform)
        assert (bucket.posted, bucket.flow.rate) == (9900, 0)
        with pytest.raises(Forbidden) as refused:
            await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        assert refused.value.facts["cap"] == name


@pytest.mark.parametrize("name", ["per_key_sats", "per_sandbox_sats", "per_day_sats"])
async def test_what_is_sent_outwards_reaches_a_cap_at_once(open_one: OpenPlatform, name: str) -> None:
    async with paying(open_one, sats=10_000) as platform:
        await cap(platform, Caps(**{name: 100}))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await planned(platform, timedelta(seconds=100))
        now = platform.clock.now()
        await platform.store.write(
            lambda conn: charge_once(
                conn, "alice", id="egress:1", subject=sandbox.id, use=Use.EGRESS, msats=100_000, now=now
            )
        )
        # No moment passes: nobody waits until the time alone would have reached it.
        await until(platform, sandbox.id, State.REAPED)
        assert (await settled(platform)).posted == 9900


@pytest.mark.parametrize("name", ["per_key_sats", "per_sandbox_sats", "per_day_sats"])
async def test_a_wall_that_does_not_stop_it_costs_nobody_more_than_the_cap(
    open_one: OpenPlatform, backend: Scripted, clock: ManualClock, name: str
) -> None:
    async with paying(open_one, sats=10_000, rates=STORED) as platform:
        await cap(platform, Caps(**{name: 100}))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await planned(platform, timedelta(seconds=100))
        grow_deaf(backend)
        clock.advance(timedelta(seconds=100))
        await due_times(platform)
        # It runs on, and no sat more is taken, however long that lasts.
        await charged_at(platform, 0)
        clock.advance(timedelta(seconds=3))
        bucket = await settled(platform)
        assert (bucket.posted, bucket.flow.rate) == (9900, 0)
        backend._failures.clear()
        clock.advance(timedelta(seconds=6))
        await until(platform, sandbox.id, State.REAPED)
        assert (await settled(platform)).posted == 9900


async def test_a_cap_that_is_raised_before_a_deaf_wall_stops_it_lets_it_pay_again(
    open_one: OpenPlatform, backend: Scripted, clock: ManualClock
) -> None:
    async with paying(open_one, sats=10_000, rates=STORED) as platform:
        await cap(platform, Caps(per_sandbox_sats=100))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await planned(platform, timedelta(seconds=100))
        grow_deaf(backend)
        clock.advance(timedelta(seconds=100))
        await due_times(platform)
        await charged_at(platform, 0)
        await cap(platform, Caps(per_sandbox_sats=1000))
        clock.advance(timedelta(seconds=6))
        await charged_at(platform, 1000)
        clock.advance(timedelta(seconds=50))
        bucket = await settled(platform)
        assert (bucket.posted, bucket.flow.rate) == (9850, 1000)
        record = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert record.state is State.READY


async def test_a_cap_noticed_late_is_kept_to_the_sat(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, sats=10_000, rates=STORED) as platform:
        await cap(platform, Caps(per_sandbox_sats=100))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await planned(platform, timedelta(seconds=100))
    clock.advance(timedelta(hours=1))
    async with paying(open_one, rates=STORED) as platform:
        await until(platform, sandbox.id, State.REAPED)
        assert (await settled(platform)).posted == 9900


async def test_a_day_s_cap_passed_while_nobody_was_here_counts_for_its_own_day(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=100_000, rates=RATES) as platform:
        await cap(platform, Caps(per_day_sats=600))
        clock.advance(timedelta(hours=23, minutes=45))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await planned(platform, timedelta(minutes=10))
    # The cap is reached at 23:55; a quarter of an hour into the next day somebody looks.
    clock.advance(timedelta(minutes=30))
    async with paying(open_one) as platform:
        await until(platform, sandbox.id, State.REAPED)
        assert (await settled(platform)).posted == 100_000 - 600
        awake = await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        assert awake.state is State.READY


async def test_two_sandboxes_share_the_cap_of_their_key(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, sats=10_000) as platform:
        await cap(platform, Caps(per_key_sats=100))
        first = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=20))
        second = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await planned(platform, timedelta(seconds=40))
        clock.advance(timedelta(seconds=50))
        await due_times(platform)
        # 20 s of one and 40 s of both.
        await until(platform, first.id, State.REAPED)
        await until(platform, second.id, State.REAPED)
        assert (await settled(platform)).posted == 9900


async def test_a_key_at_its_cap_leaves_the_account_s_other_keys_alone(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    second = Caller(public_key="sbx-pk-alice2", account="alice")
    async with paying(open_one, sats=10_000) as platform:
        await cap(platform, Caps(per_key_sats=100))
        first = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=60))
        other = await creation.create(platform.sandboxes, CreateRequest(), second)
        await planned(platform, timedelta(seconds=40))
        clock.advance(timedelta(seconds=40))
        await due_times(platform)
        await until(platform, first.id, State.REAPED)
        with pytest.raises(Forbidden, match="per_key_sats"):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        # 40 of its own 100 are spent.
        assert (await platform.sandboxes.visible(other.id, second)).state is State.READY
        await planned(platform, timedelta(seconds=60))
        await creation.create(platform.sandboxes, CreateRequest(), second)


async def test_the_disk_of_a_stopped_one_is_kept_free_from_the_cap_on(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1_000_000, rates=STORED) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        stored = sandbox.terms.card.stored
        await cap(platform, Caps(per_sandbox_sats=1000))
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        await planned(platform, timedelta(seconds=1_000_000 // stored))
        clock.advance(timedelta(seconds=2 * 1_000_000 // stored))
        await due_times(platform)
        peek = platform.sandboxes.repository.peek
        await eventually(lambda: (one := peek(sandbox.id)) is not None and one.terms.keeps_free)
        clock.advance(timedelta(hours=1))
        assert (await settled(platform)).posted == 1_000_000 - 1000


async def give_child(platform: Platform, sats: int) -> None:
    now = platform.clock.now()

    def write(conn):  # type: ignore[no-untyped-def]
        return cut(
            conn,
            "alice",
            Cut(scopes=ALL_SCOPES, budget_sats=sats),
            public_key=CHILD.public_key,
            cut_by=ALICE.public_key,
            account=CHILD.account,
            now=now,
        )

    await platform.store.write(write)


async def test_a_child_s_budget_ends_with_its_last_sat(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, sats=1000, rates=STORED) as platform:
        await platform.store.write(lambda conn: accounts.ensure(conn, "alice", actor="test", now=clock.now()))
        await give_child(platform, 1)
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), CHILD)
        # Nobody looks in time.
        clock.advance(timedelta(seconds=30))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        clock.advance(timedelta(hours=1))
        bucket = await settled(platform, CHILD.account)
        assert (bucket.posted, bucket.debt, bucket.flow.rate) == (0, 0, 0)
        assert bucket.health.standing is Standing.REAPED
        with pytest.raises(InsufficientCredit):
            await pause.resume(platform.sandboxes, sandbox.id, CHILD)
        now = clock.now()
        await platform.store.write(
            lambda conn: top_up(conn, "alice", CHILD.account, 50, id="t", cut_by="k", now=now)
        )
        awake = await pause.resume(platform.sandboxes, sandbox.id, CHILD)
        assert awake.state is State.READY
        assert awake.terms == replace(sandbox.terms)


async def test_a_reaped_one_wakes_by_itself_when_enough_is_paid(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=100) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        clock.advance(timedelta(seconds=100))
        await due_times(platform)
        await until(platform, sandbox.id, State.GRACE)
        clock.advance(timedelta(seconds=60))
        await due_times(platform)
        await until(platform, sandbox.id, State.REAPED)
        # The debt of 10, its grace, and not yet ten minutes.
        await fund(platform, 600, id="some")
        assert (await settled(platform)).posted == 590
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.REAPED
        await fund(platform, 60, id="enough")
        await until(platform, sandbox.id, State.READY)
        woken = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert woken.reason == "paid"
        clock.advance(timedelta(seconds=10))
        assert (await settled(platform)).posted == 640


async def test_a_cap_holds_though_the_ttl_ended_too_before_anyone_looked(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=10_000, rates=STORED) as platform:
        await cap(platform, Caps(per_sandbox_sats=100))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30m"), ALICE)
        await planned(platform, timedelta(seconds=100))
    clock.advance(timedelta(hours=1))
    async with paying(open_one, rates=STORED) as platform:
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        assert (await settled(platform)).posted == 9900


@asynccontextmanager
async def killed_when_it_runs(platform: Platform) -> AsyncIterator[None]:
    """The server writes nothing more after the write with which the first sandbox became ready."""
    real, repository = platform.store.write, platform.sandboxes.repository

    async def write(fn):  # type: ignore[no-untyped-def]
        if any(one.state is State.READY for one in repository.living()):
            raise Unavailable(why="the server was killed")
        return await real(fn)

    platform.store.write = write  # type: ignore[method-assign]
    yield


@pytest.mark.parametrize("name", ["per_key_sats", "per_sandbox_sats", "per_day_sats"])
@pytest.mark.parametrize("ttl", ["30m", "4h"])
async def test_a_cap_holds_though_the_server_died_before_it_knew_when(
    open_one: OpenPlatform, clock: ManualClock, name: str, ttl: str
) -> None:
    # The day ends between the cap and the next start.
    clock.advance(timedelta(hours=23, minutes=45))
    with suppress(Unavailable):
        async with paying(open_one, sats=10_000, rates=STORED) as platform:
            await cap(platform, Caps(**{name: 100}))
            async with killed_when_it_runs(platform):
                await creation.create(platform.sandboxes, CreateRequest(ttl=ttl), ALICE)
    clock.advance(timedelta(hours=1))
    async with paying(open_one, rates=STORED) as platform:
        repository = platform.sandboxes.repository
        await eventually(lambda: all(one.state is State.REAPED for one in repository.living()))
        assert (await settled(platform)).posted == 9900


@pytest.mark.parametrize("name", ["per_key_sats", "per_sandbox_sats", "per_day_sats"])
@pytest.mark.parametrize("ttl", ["30m", "4h"])
async def test_a_cap_holds_that_was_set_days_before_the_server_died(
    open_one: OpenPlatform, clock: ManualClock, name: str, ttl: str
) -> None:
    """Nothing ran when it was set, so nobody has looked since: that day is not the one to look at."""
    with suppress(Unavailable):
        async with paying(open_one, sats=10_000, rates=STORED) as platform:
            await cap(platform, Caps(**{name: 100}))
            clock.advance(timedelta(days=2))
            async with killed_when_it_runs(platform):
                await creation.create(platform.sandboxes, CreateRequest(ttl=ttl), ALICE)
    clock.advance(timedelta(hours=1))
    async with paying(open_one, rates=STORED) as platform:
        repository = platform.sandboxes.repository
        await eventually(lambda: all(one.state is State.REAPED for one in repository.living()))
        assert (await settled(platform)).posted == 9900


async def test_a_day_s_cap_that_was_reached_days_ago_stops_nothing_new(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=10_000, rates=STORED) as platform:
        spent = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=200))
        await lifetime.destroy(platform.sandboxes, spent.id, ALICE)
        await cap(platform, Caps(per_day_sats=100))
        clock.advance(timedelta(days=2))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await planned(platform, timedelta(seconds=100))
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.READY


async def test_a_budget_holds_though_the_ttl_ended_too_before_anyone_looked(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1000, rates=STORED) as platform:
        await platform.store.write(lambda conn: accounts.ensure(conn, "alice", actor="test", now=clock.now()))
        await give_child(platform, 7)
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="30m"), CHILD)
    clock.advance(timedelta(hours=1))
    async with paying(open_one, rates=STORED) as platform:
        await lifetime.destroy(platform.sandboxes, sandbox.id, CHILD)
        bucket = await settled(platform, CHILD.account)
        assert (bucket.posted, bucket.debt, bucket.flow.rate) == (0, 0, 0)
