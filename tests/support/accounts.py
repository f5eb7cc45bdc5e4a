"""Accounts on each database, driven synchronously: one `with engine.begin() as conn` is one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from sandboxer.accounts import records
from sandboxer.accounts.authority import ALL_SCOPES
from sandboxer.accounts.delegation import Cut, DelegatedKey, cut
from sandboxer.accounts.limits import LIMITS, LimitPolicy
from sandboxer.identity.keys import Caller, generate
from sandboxer.money.buckets import credit
from sandboxer.money.ledger import balance
from sandboxer.store.databases import open_database
from tests.support.schemas import PostgresDatabases, copy_and_migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OPERATOR = Caller(public_key="sbx-pk-operator", account="owner", is_owner=True)
_count = itertools.count()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    database = open_database(database_url)
    copy_and_migrate(database)
    yield database.writing
    database.dispose()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def shared_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """One database for all tests that leave nothing behind: making one for each takes most of the time."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('accounts')}/shared.db"
    else:
        databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
        url = databases.url(databases.take())
    database = open_database(url)
    copy_and_migrate(database)
    yield database.writing
    database.dispose()


@pytest.fixture
def conn(shared_engine: Engine) -> Iterator[Connection]:
    """One transaction, taken back at the end: for tests that are not about transactions."""
    with shared_engine.connect() as connection:
        transaction = connection.begin()
        yield connection
        transaction.rollback()


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_key() -> str:
    return generate("x", "x", accepts_v1=False).public_key


def rich(conn: Connection, id: str = "acc_root", sats: int = 1000) -> str:
    records.create(conn, id=id, actor="test", reason="test", now=NOW)
    if sats:
        credit(conn, id, sats, id=f"fund:{id}", reason="test", now=NOW)
    return id


def child_of(
    conn: Connection,
    parent: str,
    *,
    now: datetime = NOW,
    slots_in_use: int = 0,
    policy: LimitPolicy = LIMITS,
    **wish: Any,
) -> DelegatedKey:
    wish = {"budget_sats": 100, "scopes": ALL_SCOPES, "depth": 3, **wish}
    return cut(
        conn,
        parent,
        Cut(**wish),
        public_key=a_key(),
        cut_by=f"key-of-{parent}",
        account=f"acc_{parent.removeprefix('acc_')}.{next(_count)}"[:60],
        slots_in_use=slots_in_use,
        policy=policy,
        now=now,
    )


def sats_of(conn: Connection, account: str) -> int:
    return balance(conn, f"bucket:{account}").posted
