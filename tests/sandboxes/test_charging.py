"""A sandbox pays while it lives: exactly its rate, only from ready, never twice, never more than there is."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from sandboxer.accounts import records as accounts
from sandboxer.backends.contract import Observation, Presence
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Forbidden, InsufficientCredit, ProvisionFailed
from sandboxer.money.buckets import load_bucket
from sandboxer.money.metering import open_holds
from sandboxer.money.policy import Standing, Use
from sandboxer.money.statements import actuals
from sandboxer.sandboxes.charging import due
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, disks, inspection, lifetime, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, fund, go_dry, paying, settled, until
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform


async def standing(platform: Platform) -> Standing:
    return (await platform.store.read(lambda conn: load_bucket(conn, "alice"))).health.standing


async def test_every_state_is_charged_at_its_own_rate_to_the_sat(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    rates = {**RATES, "frozen_memory_gb_msats": 200, "stored_disk_gb_msats": 100}
    async with paying(open_one, sats=100_000, rates=rates) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        card = sandbox.terms.card
        assert card.running == 1000
        clock.advance(timedelta(seconds=10))
        await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=100))
        await pause.thaw(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=5))
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=1000))
        await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=7))
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(days=1))
        used = 22 * card.running + 100 * card.frozen + 1000 * card.stored
        bucket = await settled(platform)
        assert (100_000 - bucket.posted) * 10**9 + bucket.flow.carried == used * 10**6
        assert bucket.flow.rate == 0
        (gone,) = [e for e in await platform.events.page(sandbox.id) if e.kind == "sandbox.destroyed"]
        assert gone.data["sats"] == -(-used // 1000)


async def test_a_restart_in_between_charges_the_same(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, sats=10_000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=30))
    clock.advance(timedelta(seconds=30))
    async with paying(open_one) as platform:
        clock.advance(timedelta(seconds=40))
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        assert (await settled(platform)).posted == 10_000 - 100


async def test_a_sandbox_found_dead_is_charged_until_it_was_last_seen_alive(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with paying(open_one, sats=10_000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        alive = clock.now() + timedelta(seconds=20)
        clock.advance(timedelta(seconds=50))
    backend.reboot()

    async def recover(handle: object) -> Observation:
        return Observation(presence=Presence.STOPPED, reason="host_rebooted", last_seen_alive=alive)

    monkeypatch.setattr(backend, "recover", recover)
    clock.advance(timedelta(seconds=50))
    async with paying(open_one) as platform:
        found = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert found.state is State.STOPPED
        assert (await settled(platform)).posted == 10_000 - 20


async def test_a_failed_provision_costs_nothing_and_frees_its_hold(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    backend.fail_next("provision", ProvisionFailed(step="boot", why="no luck"))
    async with paying(open_one, sats=1000) as platform:
        with pytest.raises(ProvisionFailed):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(hours=1))
        bucket = await settled(platform)
        assert (bucket.posted, bucket.held, bucket.available) == (1000, 0, 1000)
        assert await platform.store.read(lambda conn: open_holds(conn, "alice")) == []


async def test_who_has_no_sats_is_refused_before_anything_is_made(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with paying(open_one) as platform:
        with pytest.raises(InsufficientCredit) as refused:
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert refused.value.facts["required"] == 1
        assert not backend.boxes
        assert (await inspection.list_sandboxes(platform.sandboxes, ALICE)).records == []


async def test_who_cannot_pay_does_not_empty_the_warm_pool(open_one: OpenPlatform) -> None:
    async with paying(open_one, warm_pool={"profile.agent-dev": 1}) as platform:
        warm = platform.sandboxes.warm
        await eventually(lambda: warm.count() == 1)
        with pytest.raises(InsufficientCredit):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert warm.count() == 1
        await fund(platform, 1000, id="late")
        claimed = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert claimed.reason == "claimed_warm"
        bucket = await settled(platform)
        assert (bucket.flow.rate, bucket.held) == (1000, 0)


async def test_the_owner_and_free_profiles_pay_nothing(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, free_profiles=("profile.agent-dev",)) as platform:
        mine = await creation.create(platform.sandboxes, CreateRequest(), OWNER)
        free = await creation.create(platform.sandboxes, CreateRequest(profile="profile.agent-dev"), ALICE)
        assert due(mine) == due(free) == (Use.RUNNING, 0)
        clock.advance(timedelta(minutes=30))
        for one in (mine, free):
            assert one.terms.is_free
            assert (await lifetime.destroy(platform.sandboxes, one.id, OWNER)).state is State.DESTROYED
        owner = await settled(platform, "owner")
        assert (owner.posted, owner.debt, owner.flow.rate) == (0, 0, 0)


async def test_creates_at_once_never_spend_more_than_there_is(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    # Each holds ten minutes: enough for two and a part of a third, which takes what is left.
    async with paying(open_one, sats=1500) as platform:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_try_create(platform)) for _ in range(8)]
        made = [task.result() for task in tasks if task.result() is not None]
        assert len(made) == 3
        bucket = await settled(platform)
        assert bucket.flow.rate == 3000
        assert bucket.available == 0
        clock.advance(timedelta(seconds=100))
        assert (await settled(platform)).posted == 1500 - 300


async def _try_create(platform: Platform) -> str | None:
    try:
        return (await creation.create(platform.sandboxes, CreateRequest(), ALICE)).id
    except InsufficientCredit:
        return None


async def test_dry_then_grace_then_reaped_then_paid_then_awake_under_the_same_id(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=100) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        await go_dry(platform, clock, timedelta(seconds=100))
        await until(platform, sandbox.id, State.GRACE)
        await go_dry(platform, clock, timedelta(seconds=60))
        await until(platform, sandbox.id, State.REAPED)
        bucket = await settled(platform)
        # The grace it had earned was ten seconds, though nobody looked for a minute.
        assert (bucket.posted, bucket.debt, bucket.flow.rate) == (0, 10, 0)
        with pytest.raises(InsufficientCredit):
            await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(days=2))
        await fund(platform, 200, id="rescue")
        assert (await settled(platform)).posted == 190
        awake = await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        assert (awake.id, awake.state) == (sandbox.id, State.READY)
        clock.advance(timedelta(seconds=40))
        assert (await settled(platform)).posted == 150


async def test_paid_in_grace_goes_on_and_the_debt_is_taken_first(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=50) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await go_dry(platform, clock, timedelta(seconds=50))
        await until(platform, sandbox.id, State.GRACE)
        clock.advance(timedelta(seconds=4))
        await fund(platform, 100, id="rescue")
        await until(platform, sandbox.id, State.READY)
        bucket = await settled(platform)
        assert (bucket.posted, bucket.debt) == (96, 0)


async def test_one_frozen_when_the_sats_ran_out_is_frozen_again_when_paid(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    rates = {**RATES, "frozen_memory_gb_msats": 1000}
    async with paying(open_one, sats=100, rates=rates) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        frozen = await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        paid_for = due(frozen)
        assert paid_for is not None
        await go_dry(platform, clock, timedelta(seconds=100_000 // paid_for[1] + 1))
        await until(platform, sandbox.id, State.GRACE)
        assert (await settled(platform)).flow.rate == paid_for[1]
        await fund(platform, 1000, id="rescue")
        await until(platform, sandbox.id, State.FROZEN)


async def test_thawing_one_after_the_other_gives_no_second_grace(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    """Frozen at rate zero, each could be thawed for a grace and destroyed in it, one after the other."""
    async with paying(open_one, sats=5000) as platform:
        first = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        second = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await pause.freeze(platform.sandboxes, second.id, ALICE)
        await go_dry(platform, clock, timedelta(seconds=5001))
        await until(platform, first.id, State.GRACE)
        await go_dry(platform, clock, timedelta(seconds=30))
        await lifetime.destroy(platform.sandboxes, first.id, ALICE)
        assert (await settled(platform)).debt
        with pytest.raises(InsufficientCredit):
            await pause.thaw(platform.sandboxes, second.id, ALICE)
        await fund(platform, 1000, id="rescue")
        assert (await pause.thaw(platform.sandboxes, second.id, ALICE)).state is State.READY


async def test_a_crash_before_the_purse_acted_is_made_good_at_the_start(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=100) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
    clock.advance(timedelta(seconds=100))
    async with paying(open_one) as platform:
        await until(platform, sandbox.id, State.GRACE)
        await go_dry(platform, clock, timedelta(seconds=61))
        await until(platform, sandbox.id, State.REAPED)
        assert await standing(platform) is Standing.REAPED


async def test_a_tier_s_slot_is_free_the_next_one_pays_and_all_pay_when_the_tier_ends(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=10_000) as platform:
        until_then = clock.now() + timedelta(minutes=10)
        now = clock.now()

        def entitle(conn):  # type: ignore[no-untyped-def]
            accounts.ensure(conn, "alice", actor="test", now=now)
            return accounts.entitle(
                conn, "alice", tier=1, until=until_then, actor="test", reason="bought", now=now
            )

        await platform.store.write(entitle)
        first = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        second = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert (first.terms.is_entitled, second.terms.is_entitled) == (True, False)
        assert (await settled(platform)).flow.rate == 1000
        peek = platform.sandboxes.repository.peek
        for _ in range(3):
            # A sleep that began as the clock moved sleeps on: the clock moves again.
            clock.advance(timedelta(minutes=10))
            with contextlib.suppress(AssertionError):
                await eventually(lambda: not peek(first.id).terms.is_entitled, within_s=2)  # type: ignore[union-attr]
                break
        assert (await settled(platform)).flow.rate == 2000


async def test_a_spending_cap_refuses_a_create(open_one: OpenPlatform) -> None:
    async with paying(open_one, sats=1000) as platform:
        now = platform.clock.now()

        def cap(conn):  # type: ignore[no-untyped-def]
            found = accounts.ensure(conn, "alice", actor="test", now=now)
            caps = replace(found.caps, per_day_sats=0)
            return accounts.set_caps(conn, "alice", caps, actor="test", reason="test", now=now)

        await platform.store.write(cap)
        with pytest.raises(Forbidden):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)


async def test_recreating_charges_nothing_while_it_is_made(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=10))
        again = await disks.recreate(platform.sandboxes, sandbox.id, ALICE)
        assert again.state is State.READY
        clock.advance(timedelta(seconds=5))
        bucket = await settled(platform)
        assert (bucket.posted, bucket.held, bucket.flow.rate) == (985, 0, 1000)


async def test_what_failed_and_is_made_anew_used_nothing_in_between(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with paying(open_one, sats=1000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        clock.advance(timedelta(seconds=10))
    del backend.boxes[sandbox.id]
    async with paying(open_one) as platform:
        clock.advance(timedelta(hours=1))
        await disks.recreate(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=5))
        now = clock.now()
        (line,) = await platform.store.read(lambda conn: actuals(conn, "alice", sandbox.id, now=now))
        assert (line.use, line.seconds_us) == (Use.RUNNING, 15_000_000)
        assert (await settled(platform)).posted == 985


async def test_in_grace_one_can_stop_and_owes_no_more_than_the_disk(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    rates = {**RATES, "stored_disk_gb_msats": 100}
    async with paying(open_one, sats=1000, rates=rates) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await go_dry(platform, clock, timedelta(seconds=1000))
        await until(platform, sandbox.id, State.GRACE)
        clock.advance(timedelta(seconds=10))
        stopped = await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        assert (stopped.state, stopped.reason) == (State.STOPPED, "stop_by_caller")
        clock.advance(timedelta(hours=1))
        bucket = await settled(platform)
        # Its grace of a minute goes on for the disk, and what is kept after that is nobody's debt.
        owed = 10 * 10**9 + 50 * stopped.terms.card.stored * 10**6
        assert bucket.debt * 10**9 + bucket.flow.carried == owed
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.STOPPED
        with pytest.raises(InsufficientCredit):
            await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        await fund(platform, 10_000, id="again")
        assert (await pause.resume(platform.sandboxes, sandbox.id, ALICE)).state is State.READY
