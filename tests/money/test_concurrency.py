"""Many at once. On PostgreSQL without the store's write lock too: the ledger must not depend on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.buckets import credit, load_bucket, settle_account, spend
from sandboxer.money.metering import begin_charge, close_meter, hold_slice, release
from sandboxer.money.records import bucket_id
from sandboxer.money.verification import verify
from sandboxer.store.databases import parse_url
from sandboxer.store.engine import Store
from tests.support.money import ALICE, BOB, NOW, THREADS, fund, in_threads, later, persistently
from tests.support.schemas import PostgresDatabases

# One sat a second: a slice is 600 sats.
RATE = 1000


async def test_concurrent_creates_never_hold_more_than_the_bucket(store: Store) -> None:
    await store.write(lambda conn: fund(conn, ALICE, 2000))
    held: list[int] = []

    async def create(number: int) -> None:
        def take(conn: Connection) -> int:
            hold = hold_slice(conn, ALICE, id=f"h{number}", rate=RATE, reason="create", now=NOW)
            assert hold is not None
            return hold.sats

        try:
            held.append(await store.write(take))
        except InsufficientCredit:
            held.append(0)

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(create(number))
    assert sum(held) == 2000
    assert sorted(held, reverse=True)[:4] == [600, 600, 600, 200]
    assert (await store.read(verify)).is_whole


@pytest.fixture
def free_engine(postgres_databases: PostgresDatabases) -> Engine:
    """Connections that take no lock but those of the rows they touch."""
    url = postgres_databases.url(postgres_databases.take())
    return create_engine(parse_url(url), poolclass=NullPool)


def test_creates_racing_on_their_own_connections_never_overspend(free_engine: Engine) -> None:
    persistently(free_engine, lambda conn: fund(conn, ALICE, 2000))
    gate = threading.Barrier(THREADS)

    def create(number: int) -> int:
        gate.wait()
        try:
            hold = persistently(
                free_engine,
                lambda conn: hold_slice(conn, ALICE, id=f"h{number}", rate=RATE, reason="create", now=NOW),
            )
        except InsufficientCredit:
            return 0
        return hold.sats  # type: ignore[attr-defined, no-any-return]

    held = in_threads([lambda n=n: create(n) for n in range(THREADS)])  # type: ignore[misc]
    assert sum(held) == 2000  # type: ignore[call-overload]
    with free_engine.begin() as conn:
        assert verify(conn).is_whole


def test_retries_racing_each_other_happen_once(free_engine: Engine) -> None:
    persistently(free_engine, lambda conn: fund(conn, ALICE, 0))
    persistently(free_engine, lambda conn: fund(conn, BOB, 0))

    def pay(conn: Connection) -> None:
        credit(conn, ALICE, 500, id="c1", reason="paid", now=NOW)

    def give(conn: Connection) -> None:
        spend(conn, ALICE, 100, id="g1", to=bucket_id(BOB), kind="gift", reason="gift", now=NOW)

    in_threads([lambda: persistently(free_engine, pay)] * THREADS)
    in_threads([lambda: persistently(free_engine, give)] * THREADS)
    with free_engine.begin() as conn:
        assert load_bucket(conn, ALICE).posted == 400
        assert load_bucket(conn, BOB).posted == 100
        assert verify(conn).is_whole


def test_a_crowd_that_does_everything_at_once_keeps_the_ledger_whole(free_engine: Engine) -> None:
    owners = [f"acc_{n}" for n in range(4)]
    for owner in owners:
        persistently(free_engine, lambda conn, owner=owner: fund(conn, owner, 5000))  # type: ignore[misc]

    def life(number: int) -> None:
        owner, other = owners[number % 4], owners[(number + 1) % 4]
        steps: list[Callable[[Connection], object]] = [
            lambda conn: hold_slice(conn, owner, id=f"h{number}", rate=RATE, reason="x", now=later(1)),
            lambda conn: begin_charge(
                conn,
                owner,
                hold_id=f"h{number}",
                meter_id=f"m{number}",
                subject=f"s{number}",
                rate=RATE,
                now=later(2),
            ),
            lambda conn: settle_account(conn, owner, now=later(number + 3)),
            lambda conn: spend(
                conn, owner, 7, id=f"g{number}", to=bucket_id(other), kind="g", reason="g", now=later(9)
            ),
            lambda conn: close_meter(conn, f"m{number}", now=later(number + 30), at=later(20)),
            lambda conn: release(conn, owner, f"h{number}", reason="x", now=later(99)),
        ]
        for step in steps:
            try:
                persistently(free_engine, step)
            except InsufficientCredit:
                if step is steps[0]:
                    return

    in_threads([lambda n=n: life(n) for n in range(40)])  # type: ignore[misc]
    with free_engine.begin() as conn:
        for owner in owners:
            settle_account(conn, owner, now=NOW + timedelta(hours=1))
        proof = verify(conn)
        assert proof.is_whole, proof.faults
        total = sum(load_bucket(conn, owner).posted for owner in owners)
        lives = proof.segments
        assert total == 20_000 - 18 * lives
        assert lives >= 24
