from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, insert, select

from sandboxer.kernel.clock import SystemClock
from sandboxer.money.buckets import credit
from sandboxer.money.metering import open_meter
from sandboxer.money.policy import Use
from sandboxer.money.reconciler import BucketTimer, attend_due, next_due
from sandboxer.money.tables import ledger_accounts, meters, money_buckets
from sandboxer.observe.events import events
from sandboxer.store.engine import Store, open_store
from tests.support.clock import ManualClock
from tests.support.money import ALICE, BOB, NOW, fund, later, paid_before


def metered(owner: str, sats: int, *, now: datetime = NOW, rate: int = 1000) -> Callable[[Connection], None]:
    def prepare(conn: Connection) -> None:
        # Grace is earned.
        paid_before(conn, owner, 1_000_000, now=now)
        credit(conn, owner, sats, id=f"c:{owner}", reason="test", now=now)
        open_meter(conn, owner, id=f"m:{owner}", subject="sbx_1", use=Use.RUNNING, rate=rate, now=now)

    return prepare


def emitted(conn: Connection) -> list[tuple[str, str, datetime]]:
    query = select(events.c.subject, events.c.kind, events.c.at).order_by(events.c.id)
    return [(subject, kind, at) for subject, kind, at in conn.execute(query)]


@asynccontextmanager
async def ticking(timer: BucketTimer) -> AsyncIterator[None]:
    task = asyncio.create_task(timer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(
    store: Store,
    condition: Callable[[list[tuple[str, str, datetime]]], bool],
    clock: ManualClock | None = None,
) -> None:
    """Until the events say so; a manual clock is moved on by a second a look."""
    deadline = time.monotonic() + 20
    while not condition(await store.read(emitted)):
        assert time.monotonic() < deadline, await store.read(emitted)
        await asyncio.sleep(0.005)
        if clock is not None:
            clock.advance(timedelta(seconds=1))


def test_only_what_is_due_is_attended_to(conn: Connection) -> None:
    fund(conn, "acc_idle", 5)
    metered(ALICE, 30)(conn)
    metered(BOB, 50)(conn)
    assert next_due(conn) == later(30)
    assert attend_due(conn, now=later(29)) == []
    assert attend_due(conn, now=later(30)) == [ALICE]
    assert next_due(conn) == later(50)
    assert attend_due(conn, now=later(100)) == [BOB, ALICE]
    assert attend_due(conn, now=later(200)) == [BOB]
    assert next_due(conn) is None


async def test_the_timer_tells_each_moment_as_it_comes(store: Store) -> None:
    clock = ManualClock(NOW)
    await store.write(metered(ALICE, 100))
    async with ticking(BucketTimer(store, clock)):
        await until(store, lambda seen: seen[-1][1] == "account.reaped", clock)
    seen = await store.read(emitted)
    kinds = [kind for _, kind, _ in seen]
    assert kinds == ["account.low", "account.low", "account.dry", "account.reaped"]
    assert [at for *_, at in seen] == sorted(at for *_, at in seen)
    assert later(100) <= seen[2][2] < later(110)
    assert seen[2][2] + timedelta(seconds=60) <= seen[3][2] < seen[2][2] + timedelta(seconds=70)


async def test_a_new_earlier_moment_wakes_the_timer(store: Store) -> None:
    now = datetime.now(UTC)
    await store.write(metered(ALICE, 10_000_000, now=now))
    async with ticking(BucketTimer(store, SystemClock())):
        await asyncio.sleep(0.1)
        begun = datetime.now(UTC)
        await store.write(metered(BOB, 300, now=begun, rate=1_000_000))
        await until(store, lambda seen: (BOB, "account.dry") in [s[:2] for s in seen])
    (at,) = [at for subject, kind, at in await store.read(emitted) if (subject, kind) == (BOB, "account.dry")]
    assert timedelta(0) <= at - (begun + timedelta(seconds=0.3)) < timedelta(seconds=0.25)


def crowd(conn: Connection, count: int, now: datetime) -> None:
    """So many buckets with one running meter each, all far from dry, as rows."""
    far = now + timedelta(days=1000)
    names = [f"acc_{number:06}" for number in range(count)]
    account = {
        "asset": "sats",
        "debits_posted": 0,
        "debits_pending": 0,
        "credits_pending": 0,
        "transfers": 0,
        "digest": 0,
        "created_at": now,
    }
    conn.execute(
        insert(ledger_accounts),
        [
            {
                **account,
                "id": f"bucket:{n}",
                "kind": "bucket",
                "owner": n,
                "may_overdraw": False,
                "credits_posted": 86_400_000,
            }
            for n in names
        ]
        + [
            {
                **account,
                "id": f"debt:{n}",
                "kind": "debt",
                "owner": n,
                "may_overdraw": True,
                "credits_posted": 0,
            }
            for n in names
        ],
    )
    bucket = {"rate_msats": 1000, "settled_at": now, "carried_nsats": 0, "settlements": 0}
    conn.execute(
        insert(money_buckets),
        [
            {**bucket, "owner": n, "standing": "alive", "due_at": far + timedelta(seconds=i)}
            for i, n in enumerate(names)
        ],
    )
    meter = {"kind": "running", "rate_msats": 1000, "began_at": now, "segments": 0, "step": 0}
    conn.execute(insert(meters), [{**meter, "id": f"m:{n}", "owner": n, "subject": n} for n in names])


@pytest.mark.alone
async def test_a_hundred_thousand_meters_cost_nothing_and_the_next_expiry_is_on_time(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = open_store(f"sqlite:///{tmp_path}/x.db", patience=None)
    await store.write(lambda conn: crowd(conn, 100_000, datetime.now(UTC)))
    async with ticking(BucketTimer(store, SystemClock())):
        await asyncio.sleep(0.2)
        begun = datetime.now(UTC)
        await store.write(metered(BOB, 1500, now=begun, rate=1_000_000))
        await asyncio.sleep(0.2)
        spent, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(1.0)
        share = (time.process_time() - spent) / (time.monotonic() - wall)
        await until(store, lambda seen: (BOB, "account.dry") in [s[:2] for s in seen])
    (at,) = [at for subject, kind, at in await store.read(emitted) if (subject, kind) == (BOB, "account.dry")]
    await store.close()
    assert share < 0.01
    assert timedelta(0) <= at - (begun + timedelta(seconds=1.5)) < timedelta(milliseconds=100)
