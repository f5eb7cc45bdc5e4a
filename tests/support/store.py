"""Records in a store, and stores on their own databases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import psycopg
from sqlalchemy import text

from sandboxer.kernel.errors import Unavailable
from sandboxer.observe.events import record
from sandboxer.store.claim import Claim
from sandboxer.store.engine import PATIENCE, Store, open_store
from sandboxer.store.workers import Patience

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def a_record(conn, subject="sbx_a"):
    record(conn, subject=subject, kind="made", actor="test", reason="because", at=NOW, data={})


def count(conn) -> int:
    return conn.execute(text("SELECT count(*) FROM events")).scalar()


def fresh_database(server: str, name: str) -> str:
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return server.rpartition("/")[0] + "/" + name


async def until(what: Callable[[], Awaitable[object]], *, within_s: float = 15) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            await what()
            return
        except Unavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def opened(url: str, claim: Claim, patience: Patience = PATIENCE) -> Store:
    store = open_store(url, claim=claim, patience=patience)
    await until(lambda: store.write(claim.begin))
    return store
