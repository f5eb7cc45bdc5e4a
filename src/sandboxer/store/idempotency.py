"""The first answer to a request with an Idempotency-Key, for whoever repeats it.

begin ──> Fresh    do the work, then `finish` (keep the answer), `spend` (done, but the answer holds a secret)
      │            or `abandon` (failed by our fault, or 402: may be tried again)
      ├─> Replay   give this answer again
      ├─> Spent    it was done; its answer was not kept
      └─> InFlight somebody is at it: 409, come back
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import IdempotencyConflict
from sandboxer.store.engine import Store
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata

log = logging.getLogger(__name__)
KEPT_FOR = timedelta(hours=24)
PRUNE_EVERY = timedelta(hours=1)
# Longer than any create may take: whoever began and is silent for this long has died.
IN_FLIGHT_FOR = timedelta(minutes=10)
_PRUNE_AT_ONCE = 500

_IN_FLIGHT, _DONE, _SPENT = "in_flight", "done", "spent"

idempotency = Table(
    "idempotency",
    metadata,
    # Whose key it is, and on which route: two accounts may choose the same key.
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    # Fences `finish`: one who was given up must not overwrite his successor's answer.
    Column("claim", Text, nullable=False),
    Column("request_hash", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("status", Integer, nullable=True),
    Column("headers", JsonValue, nullable=True),
    Column("body", LargeBinary, nullable=True),
    Column("begun_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """The caller's turn. Hand this to `finish`, `spend` or `abandon`."""

    scope: str
    key: str
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    since: datetime
    retry_after_s: int = 1


Begun = Fresh | Replay | Spent | InFlight


def begin(conn: Connection, *, scope: str, key: str, request_hash: str, now: datetime) -> Begun:
    """Claim the key, or learn what became of it. Raises IdempotencyConflict for another request's key."""
    row = conn.execute(
        select(idempotency).where(idempotency.c.scope == scope, idempotency.c.key == key)
    ).one_or_none()
    if row is not None and not _is_over(row, now):
        if row.request_hash != request_hash:
            raise IdempotencyConflict(key=key)
        return _found(row)
    if row is not None:
        conn.execute(delete(idempotency).where(idempotency.c.scope == scope, idempotency.c.key == key))
    fresh = Fresh(scope=scope, key=key, claim=secrets.token_hex(16))
    conn.execute(
        insert(idempotency).values(
            scope=scope,
            key=key,
            claim=fresh.claim,
            request_hash=request_hash,
            state=_IN_FLIGHT,
            begun_at=now,
            expires_at=now + KEPT_FOR,
        )
    )
    return fresh


def finish(conn: Connection, fresh: Fresh, *, status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """Keep the answer for repetitions. False if the claim was lost meanwhile (the answer still stands)."""
    return _settle(conn, fresh, state=_DONE, status=status, headers=dict(headers), body=body)


def spend(conn: Connection, fresh: Fresh) -> bool:
    """It was done once and must not be done again, but its answer holds a secret and is not kept."""
    return _settle(conn, fresh, state=_SPENT)


def abandon(conn: Connection, fresh: Fresh) -> bool:
    """Nothing was done: the same key may be tried again."""
    return conn.execute(delete(idempotency).where(*_is_ours(fresh))).rowcount == 1


def abandon_all_in_flight(conn: Connection) -> int:
    """At a start: nobody is at work on what a dead process began."""
    return conn.execute(delete(idempotency).where(idempotency.c.state == _IN_FLIGHT)).rowcount


def prune(conn: Connection, *, now: datetime) -> int:
    """Remove some of what has expired; returns how many. More may be left unless it returns 0."""
    due = (
        select(idempotency.c.scope, idempotency.c.key)
        .where(idempotency.c.expires_at <= now)
        .limit(_PRUNE_AT_ONCE)
    )
    rows = conn.execute(due).all()
    for scope, key in rows:
        conn.execute(delete(idempotency).where(idempotency.c.scope == scope, idempotency.c.key == key))
    return len(rows)


async def keep_pruned(store: Store, clock: Clock) -> None:
    """For ever; cancel it to stop."""
    while True:
        try:
            while await store.write(partial(prune, now=clock.now())):
                pass
        except Exception:
            # An outermost loop: what could not be removed now is removed the next time.
            log.exception("expired idempotency keys could not be removed")
        await clock.sleep(PRUNE_EVERY)


def _is_over(row: Row[Any], now: datetime) -> bool:
    if row.state == _IN_FLIGHT:
        return bool(now - row.begun_at >= IN_FLIGHT_FOR)
    return bool(now >= row.expires_at)


def _found(row: Row[Any]) -> Begun:
    if row.state == _IN_FLIGHT:
        return InFlight(since=row.begun_at)
    if row.state == _SPENT:
        return Spent(at=row.begun_at)
    return Replay(status=row.status, headers=row.headers, body=row.body)


def _settle(conn: Connection, fresh: Fresh, **values: object) -> bool:
    return conn.execute(update(idempotency).where(*_is_ours(fresh)).values(**values)).rowcount == 1


def _is_ours(fresh: Fresh) -> tuple[Any, ...]:
    columns = idempotency.c
    return (
        columns.scope == fresh.scope,
        columns.key == fresh.key,
        columns.claim == fresh.claim,
        columns.state == _IN_FLIGHT,
    )
