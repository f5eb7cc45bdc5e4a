"""A ledger on each database, driven synchronously: one `with begin() as conn` is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, Engine, delete
from sqlalchemy.exc import OperationalError

from sandboxer.money import tables
from sandboxer.money.buckets import credit, open_bucket
from sandboxer.money.metering import charge_once
from sandboxer.money.policy import Use
from sandboxer.observe.events import events
from sandboxer.store.databases import open_database
from tests.support.schemas import copy_and_migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ALICE, BOB = "acc_alice", "acc_bob"
ALL = (
    tables.ledger_transfers,
    tables.ledger_accounts,
    tables.ledger_pendings,
    tables.money_buckets,
    tables.meters,
    tables.meter_segments,
    tables.spent_days,
    events,
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    database = open_database(database_url)
    copy_and_migrate(database)
    yield database.writing
    database.dispose()


@pytest.fixture
def conn(engine: Engine) -> Iterator[Connection]:
    """One long transaction: for tests that are not about transactions."""
    with engine.begin() as connection:
        yield connection


def later(seconds: float = 0, *, us: int = 0) -> datetime:
    return NOW + timedelta(seconds=seconds, microseconds=us)


def fund(conn: Connection, owner: str, sats: int, *, id: str | None = None) -> None:
    open_bucket(conn, owner, now=NOW)
    if sats:
        credit(conn, owner, sats, id=id or f"fund:{owner}", reason="test", now=NOW)


def paid_before(conn: Connection, owner: str, sats: int = 600, *, now: datetime = NOW) -> None:
    """An account that has paid so much in earlier days, and has nothing left of it: grace is earned."""
    open_bucket(conn, owner, now=now)
    credit(conn, owner, sats, id=f"before:{owner}", reason="test", now=now)
    charge_once(conn, owner, id=f"used:{owner}", subject="sbx_0", use=Use.EGRESS, msats=sats * 1000, now=now)


def wipe(conn: Connection) -> None:
    for table in ALL:
        conn.execute(delete(table))


THREADS = 16


def persistently(engine: Engine, what: Callable[[Connection], object]) -> object:
    """As the store does: a transaction that lost a deadlock is run again."""
    while True:
        try:
            with engine.begin() as conn:
                return what(conn)
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) not in {"40P01", "40001"}:
                raise


def in_threads(jobs: list[Callable[[], object]]) -> list[object]:
    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]
