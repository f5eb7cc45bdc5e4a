"""A spending cap also bounds what is kept: a snapshot costs nothing from the moment its cap is reached."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, insert

from sandboxer.accounts import records as accounts
from sandboxer.accounts.caps import Caps
from sandboxer.artifacts.charges import read_capped
from sandboxer.artifacts.reconciler import demanded_by_money
from sandboxer.artifacts.records import Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.artifacts.volumes.use_cases import Wanted as WantedVolume
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.amounts import NSATS_PER_SAT
from sandboxer.money.buckets import credit, load_bucket, open_bucket
from sandboxer.money.metering import change_rate, find_meter, open_meter
from sandboxer.money.policy import Standing, Use
from sandboxer.money.segments import day_of, spent
from sandboxer.money.tables import money_policy
from sandboxer.money.verification import verify
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.terms import Reached
from sandboxer.sandboxes.use_cases import creation, lifetime, pause
from sandboxer.store.metadata import metadata
from sandboxer.wiring import Platform
from tests.support.charging import RATES, cap, fund, go_dry, paying, settled
from tests.support.clock import ManualClock
from tests.support.sandboxes import ALICE, OpenPlatform

# A sat a second for a snapshot of up to a MB, and nothing for what runs.
KEPT = {**RATES, "running_msats": 0, "stored_disk_gb_msats": 1_024_000}


async def kept(platform: Platform, backend: Scripted) -> Snapshot:
    sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
    backend.boxes[sandbox.id].disk.write("/root/x", b"x")
    return await platform.artifacts.snapshots.take(sandbox.id, Wanted(), ALICE)


async def becomes(platform: Platform, snapshot: Snapshot, state: State) -> Snapshot:
    deadline = asyncio.get_running_loop().time() + 30
    while (found := await platform.artifacts.snapshots.get(snapshot.id, ALICE)).state is not state:
        assert asyncio.get_running_loop().time() < deadline, f"it stays {found.state}"
        await asyncio.sleep(0.005)
    return found


@pytest.mark.parametrize("name", ["per_key_sats", "per_day_sats"])
async def test_a_snapshot_is_kept_without_charge_once_its_cap_is_reached(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, name: str
) -> None:
    async with paying(open_one, sats=10_000, rates=KEPT) as platform:
        await cap(platform, Caps(**{name: 100}))
        snapshot = await kept(platform, backend)
        assert snapshot.rate_msats == 1000
        # Noticed late, and charged up to the very moment.
        clock.advance(timedelta(hours=2))
        unpaid = await becomes(platform, snapshot, State.UNPAID)
        assert unpaid.reason == "spending_cap"
        bucket = await settled(platform)
        assert (bucket.posted, bucket.flow.rate) == (9900, 0)
        (event,) = [e for e in await platform.events.page(snapshot.id) if e.kind == "snapshot.unpaid"]
        assert (event.data["cap"], event.data["limit_sats"]) == (name, 100)
        clock.advance(timedelta(days=1))
        if name == "per_key_sats":
            await asyncio.sleep(0.05)
            assert (await platform.artifacts.snapshots.get(snapshot.id, ALICE)).state is State.UNPAID
            await cap(platform, Caps(per_key_sats=200))
        await becomes(platform, snapshot, State.KEPT)


async def test_a_snapshot_of_a_stopped_sandbox_is_refused_before_it_is_taken_if_nobody_can_pay_for_it(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    rates = {**RATES, "running_msats": 0, "stored_disk_gb_msats": 1024}
    async with paying(open_one, sats=1, rates=rates) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        backend.boxes[sandbox.id].disk.write("/root/x", b"x" * 5 * 2**20)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        with pytest.raises(InsufficientCredit):
            await platform.artifacts.snapshots.take(sandbox.id, Wanted(), ALICE)
        assert not (await platform.artifacts.snapshots.list(ALICE)).records


async def test_a_snapshot_and_a_sandbox_share_the_cap_of_their_key(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with paying(open_one, sats=10_000, rates={**KEPT, "running_msats": 1000}) as platform:
        await cap(platform, Caps(per_key_sats=100))
        snapshot = await kept(platform, backend)
        clock.advance(timedelta(hours=1))
        await becomes(platform, snapshot, State.UNPAID)
        deadline = asyncio.get_running_loop().time() + 5
        while (bucket := await settled(platform)).flow.rate:
            assert asyncio.get_running_loop().time() < deadline
        assert bucket.posted == 9900


async def test_what_was_kept_while_nothing_was_charged_pays_from_the_start_that_charges(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    """Nothing ever happens to what is only kept: it was kept for nothing, for ever."""
    async with open_one(charging=False) as platform:
        snapshot = await kept(platform, backend)
        await platform.artifacts.volumes.create(WantedVolume(name="disk", size_mb=16), ALICE)
        await lifetime.destroy(platform.sandboxes, snapshot.sandbox_id, ALICE)
        await fund(platform, 1000, id="before")
        clock.advance(timedelta(days=1))
    # Neither is the time owed in which nothing was charged again.
    for left in (830, 660):
        async with paying(open_one, rates=KEPT) as platform:
            clock.advance(timedelta(seconds=10))
            assert (await settled(platform)).posted == left
        async with open_one(charging=False):
            clock.advance(timedelta(days=1))


async def test_nothing_is_unpaid_where_nothing_is_charged(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    """What had run out of sats was removed in its time, although its account owed nothing any more."""
    async with paying(open_one, sats=20, rates=KEPT) as platform:
        snapshot = await kept(platform, backend)
        await go_dry(platform, clock, timedelta(hours=1))
        await becomes(platform, snapshot, State.UNPAID)
    async with open_one(charging=False, retention="30d") as platform:
        found = await becomes(platform, snapshot, State.KEPT)
        assert found.expires_at is None
        clock.advance(timedelta(days=60))
        assert (await platform.artifacts.snapshots.get(snapshot.id, ALICE)).state is State.KEPT


async def test_a_days_cap_that_was_reached_while_nobody_was_there_holds_all_the_same(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    """Down from the first day to the fourth: one day's cap is charged, and from the start on today's."""
    async with paying(open_one, sats=1_000_000, rates=KEPT) as platform:
        await cap(platform, Caps(per_day_sats=20_000))
        snapshot = await kept(platform, backend)
        volume = await platform.artifacts.volumes.create(WantedVolume(name="disk", size_mb=16), ALICE)
        assert volume.rate_msats == 16_000
    clock.advance(timedelta(days=3))
    async with paying(open_one, rates=KEPT) as platform:
        began = clock.now()
        deadline = asyncio.get_running_loop().time() + 30
        # Cut off on the first day, and kept again from now on.
        while "snapshot.unpaid" not in {e.kind for e in await platform.events.page(snapshot.id)}:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        await becomes(platform, snapshot, State.KEPT)
        (unpaid,) = [e for e in await platform.events.page(snapshot.id) if e.kind == "snapshot.unpaid"]
        assert (unpaid.reason, unpaid.data["cap"], unpaid.at) == ("spending_cap", "per_day_sats", began)
        while (bucket := await settled(platform)).posted < 980_000:
            assert asyncio.get_running_loop().time() < deadline, bucket
        assert bucket.posted == 980_000


@dataclass(frozen=True)
class Thing:
    """Something that is kept, as the keepers see it."""

    id: str
    created_at: datetime
    rate_msats: int
    account: str = "alice"
    created_by: str = "k"


# As the migrations leave it.
POLICY = {"name": "all", "grace_us": 60_000_000, "grace_cap_us": 600_000_000, "reserve_us": 0}
STEPS = st.tuples(st.sampled_from(["keep", "drop", "nothing"]), st.integers(1, 60 * 3600), st.booleans())


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(steps=st.lists(STEPS, max_size=6), limit=st.integers(1, 50_000))
def test_no_day_costs_more_than_its_cap_whenever_somebody_looked(
    steps: list[tuple[str, int, bool]], limit: int
) -> None:
    """Time passes with the server asleep or down; when it is back it looks before anyone can ask."""
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    first = now = datetime(2026, 1, 1, tzinfo=UTC)
    looked_at, living = None, dict[str, Thing]()
    with engine.begin() as conn:
        accounts.ensure(conn, "alice", actor="test", now=now)
        accounts.set_caps(conn, "alice", Caps(per_day_sats=limit), actor="test", reason="test", now=now)
        conn.execute(insert(money_policy).values(**POLICY))
        open_bucket(conn, "alice", now=now)
        credit(conn, "alice", 10**9, id="first", reason="test", now=now)
        for number, (what, seconds, was_down) in enumerate([*steps, ("nothing", 1, True)]):
            now += timedelta(seconds=seconds)
            looked_at = look(conn, list(living.values()), now, None if was_down else looked_at)
            if what == "keep":
                one = living[f"snp_{number}"] = Thing(f"snp_{number}", now, 1 + seconds % 2000)
                turn(conn, one, one.rate_msats, now)
            elif what == "drop" and living:
                turn(conn, living.pop(min(living)), 0, now)
        day = day_of(now)
        while day >= first:
            # The last sat is charged when it is whole: a fraction of the next may be owed.
            position = load_bucket(conn, "alice").run_to(now)
            assert spent(conn, "alice", position, day=day, now=now) < (limit + 1) * NSATS_PER_SAT, day
            day -= timedelta(days=1)
        assert verify(conn).is_whole


def look(conn: Connection, living: list[Thing], now: datetime, since: datetime | None) -> datetime | None:
    """As the keepers do: once for what was missed, and once for what goes on from now."""
    for _ in range(2):
        capped = read_capped(conn, living, now=now, since=since)
        since = capped.seen_until
        for one in living:
            reached = capped.reached.get(one.id)
            turn(conn, one, 0 if reached else one.rate_msats, now, None if reached is None else reached.at)
    return since


def turn(conn: Connection, one: Thing, rate: int, now: datetime, at: datetime | None = None) -> None:
    """As `KeepCharges.apply` does with its meter."""
    if find_meter(conn, one.id) is None:
        open_meter(conn, "alice", id=one.id, subject=one.id, use=Use.STORED, rate=rate, now=now, key="k")
    else:
        change_rate(conn, one.id, use=Use.STORED, rate=rate, now=now, at=at)


def test_an_image_is_kept_without_charge_too(clock: ManualClock) -> None:
    met = Reached(cap="per_day_sats", limit_sats=100, at=clock.now())
    kept_, unpaid = (SimpleNamespace(state=state, rate_msats=1000) for state in (State.KEPT, State.UNPAID))
    cases: list[tuple[Any, Reached | None, Signal | None]] = [
        (kept_, met, Signal.DRY),
        (kept_, None, None),
        (unpaid, met, None),
        (unpaid, None, Signal.PAID),
    ]
    for image, reached, wanted in cases:
        assert demanded_by_money(image, Standing.ALIVE, reached) is wanted
