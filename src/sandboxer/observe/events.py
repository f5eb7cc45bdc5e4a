"""Records what happened, in order. An event is recorded in the transaction of its change (outbox), so there
is never a change without its event nor an event without its change.

Followers hold a cursor, not a queue: a slow one costs nothing but its own lateness.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Index, Table, Text, func, insert, select

from sandboxer.kernel.values import value_class
from sandboxer.store.engine import Store
from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime, metadata, required
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

MAX_PAGE = 500
# How many events a follower holds at a time; the rest waits in the database.
_FOLLOW_PAGE = 100

events = Table(
    "events",
    metadata,
    # AUTOINCREMENT: an id is never given twice, even after the newest rows were pruned.
    Column("id", RowId, primary_key=True, autoincrement=True),
    *required(Text, "subject", "kind", "actor", "reason"),
    Column("at", UtcDateTime, nullable=False),
    Column("data", JsonValue, nullable=False),
    Index(None, "subject", "id"),
    sqlite_autoincrement=True,
)
_INSERT = insert(events).inline()


@value_class
class Event:
    # Grows in the order events become visible: whoever saw id N will never be shown a smaller one later.
    id: int
    # The id of what it is about: `sbx_…`, a key, an account.
    subject: str
    kind: str
    # Who caused it: a public key, or `system:<loop>`.
    actor: str
    reason: str
    at: datetime
    data: Mapping[str, Any]


def record(
    conn: Connection,
    *,
    subject: str,
    kind: str,
    actor: str,
    reason: str,
    at: datetime,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Records an event in the write transaction of its change. Followers wake once that is committed."""
    conn.execute(
        _INSERT,
        {
            "subject": subject,
            "kind": kind,
            "actor": actor,
            "reason": reason,
            "at": at,
            "data": dict(data or {}),
        },
    )
    announce(conn, subject)


def record_in_order(conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """As `record`, of several at once: each row has the names of its arguments, and they are written in this
    order by one statement.
    """
    if rows:
        conn.execute(_INSERT, list(rows))
        announce(conn, *(row["subject"] for row in rows))


@value_class
class Told:
    """What one of many events of the same kind says."""

    subject: str
    reason: str
    data: Mapping[str, Any]


def record_all(conn: Connection, told: Sequence[Told], *, kind: str, actor: str, at: datetime) -> None:
    """As `record`, of many at once: in this order, by one statement."""
    rows = [
        {
            "subject": one.subject,
            "kind": kind,
            "actor": actor,
            "reason": one.reason,
            "at": at,
            "data": dict(one.data),
        }
        for one in told
    ]
    record_in_order(conn, rows)


class Events:
    """Reads and follows the event log. Lives on one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followers: set[_Bell] = set()
        self._is_closed = False
        self._leave = store.on_commit(self._ring)

    async def page(self, subject: str | None, after: int = 0, limit: int = MAX_PAGE) -> list[Event]:
        """Returns events with an id greater than `after`, oldest first; of every subject if `subject` is
        None.
        """
        query = select(events).where(events.c.id > after).order_by(events.c.id).limit(min(limit, MAX_PAGE))
        if subject is not None:
            query = query.where(events.c.subject == subject)
        return await self._store.read(lambda conn: [from_row(Event, row) for row in conn.execute(query)])

    async def last(self, subject: str, kind: str) -> Event | None:
        """Returns the newest event of this kind about a subject."""
        about = (events.c.subject == subject) & (events.c.kind == kind)
        query = select(events).where(about).order_by(events.c.id.desc()).limit(1)
        return await self._store.read(
            lambda conn: next((from_row(Event, row) for row in conn.execute(query)), None)
        )

    async def last_id(self) -> int:
        """Returns the newest id, or 0. Following from there gives only new events."""
        query = select(func.max(events.c.id))
        return await self._store.read(lambda conn: conn.execute(query).scalar()) or 0

    async def follow(self, subject: str | None, after: int = 0) -> AsyncIterator[Event]:
        """Yields every event after id `after`, first those stored, then new ones; each once, in order.

        Ends when it is closed (`aclosing`) or `close` is called.
        """
        bell = _Bell(subject)
        self._followers.add(bell)
        try:
            while True:
                # Cleared before reading: a commit that the read misses rings again.
                bell.rung.clear()
                is_last_look = self._is_closed
                page = await self.page(subject, after, _FOLLOW_PAGE)
                for event in page:
                    yield event
                    after = event.id
                if len(page) < _FOLLOW_PAGE:
                    if is_last_look:
                        return
                    await bell.rung.wait()
        finally:
            self._followers.discard(bell)

    def close(self) -> None:
        """Stops listening to commits. Followers get what is stored by now, and end. Call it before the
        store closes.
        """
        self._leave()
        self._is_closed = True
        for bell in self._followers:
            bell.rung.set()

    def _ring(self, topics: frozenset[str]) -> None:
        for bell in self._followers:
            if bell.subject is None or bell.subject in topics:
                bell.rung.set()


class _Bell:
    __slots__ = ("rung", "subject")

    def __init__(self, subject: str | None) -> None:
        self.subject = subject
        self.rung = asyncio.Event()
