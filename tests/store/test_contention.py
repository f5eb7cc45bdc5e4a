"""What other processes on the same database can do to a store, and cannot."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from sandboxer.kernel.errors import Unavailable
from sandboxer.store import databases
from sandboxer.store.engine import Store, open_store
from tests.support.store import a_record, count, fresh_database


async def test_a_locked_sqlite_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "BUSY_TIMEOUT_MS", 30)
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.rollback)
    release.start()
    await store.write(a_record)
    release.join()
    assert await store.read(count) == 1
    await store.close()
    other.close()


async def test_a_sqlite_that_stays_locked_is_said_to_be_busy_and_works_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "BUSY_TIMEOUT_MS", 10)
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="busy"):
        await store.write(a_record)
    other.rollback()
    other.close()
    await store.write(a_record)
    assert await store.read(count) == 1
    await store.close()


async def test_foreign_keys_are_enforced(store: Store) -> None:
    def orphan(conn):
        conn.execute(text("CREATE TABLE parent (id INTEGER PRIMARY KEY)"))
        conn.execute(text("CREATE TABLE child (id INTEGER REFERENCES parent (id))"))
        conn.execute(text("INSERT INTO child VALUES (1)"))

    with pytest.raises(Exception, match=r"(?i)foreign key"):
        await store.write(orphan)


async def test_a_transaction_is_run_again_after_a_serialization_failure(postgres_url: str) -> None:
    url = fresh_database(postgres_url, "serialization")
    store = open_store(url)
    tries = []

    def fails_once(conn):
        a_record(conn)
        tries.append(1)
        if len(tries) == 1:
            conn.execute(text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"))

    await store.write(fails_once)
    assert len(tries) == 2
    assert await store.read(count) == 1
    await store.close()


async def test_a_lost_connection_is_replaced_and_the_transaction_run_again(postgres_url: str) -> None:
    url = fresh_database(postgres_url, "lost")
    store = open_store(url)
    await store.write(a_record)
    assert await store.read(count) == 1
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await store.write(a_record)
    assert await store.read(count) == 2
    await store.close()


async def test_two_stores_on_one_database_do_not_lose_each_others_updates(database_url: str) -> None:
    """Read, decide, write: what SQLite gives by nature, PostgreSQL must give by the write lock."""
    stores = [open_store(database_url), open_store(database_url)]
    await stores[0].write(lambda conn: conn.execute(text("CREATE TABLE counter (n INTEGER)")))
    await stores[0].write(lambda conn: conn.execute(text("INSERT INTO counter VALUES (0)")))

    def increment(conn):
        seen = conn.execute(text("SELECT n FROM counter")).scalar()
        conn.execute(text("UPDATE counter SET n = :n"), {"n": seen + 1})

    async with asyncio.TaskGroup() as group:
        for store in stores * 50:
            group.create_task(store.write(increment))
    query = text("SELECT n FROM counter")
    assert await stores[0].read(lambda conn: conn.execute(query).scalar()) == 100
    for store in stores:
        await store.close()
