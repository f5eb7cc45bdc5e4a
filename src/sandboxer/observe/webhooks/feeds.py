"""What there is to tell of: feeds that grow at their end, read by a cursor that moves with the outbox.

A feed's positions become visible in growing order (all writers of the store wait for each other), so
"everything after the cursor" misses nothing and repeats nothing. Upper rooms bring feeds of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection, func, select

from sandboxer.observe.events import events

# Says whose each subject is; those it does not know belong to the operator alone.
Owners = Callable[[Connection, Iterable[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    position: int
    # The message's id, the same for every receiver and every try.
    id: str
    kind: str
    # None: only endpoints that hear of everything are told.
    account: str | None
    at: datetime
    data: Mapping[str, Any]


class Feed(Protocol):
    name: str

    def last(self, conn: Connection, *, now: datetime) -> int:
        """The newest position: where a feed nobody listened to begins."""

    def read(self, conn: Connection, after: int, limit: int, *, now: datetime) -> Sequence[Happening]:
        """What comes after a position, in order; empty when there is nothing more."""

    def next_at(self, *, now: datetime) -> datetime | None:
        """When there will be more though nothing is written; None if only writes make more."""


class EventFeed:
    """The event log."""

    name = "events"

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def last(self, conn: Connection, *, now: datetime) -> int:
        return conn.execute(select(func.max(events.c.id))).scalar() or 0

    def read(self, conn: Connection, after: int, limit: int, *, now: datetime) -> Sequence[Happening]:
        query = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        rows = conn.execute(query).all()
        owners = self._owners(conn, {row.subject for row in rows}) if rows else {}
        return [
            Happening(
                position=row.id,
                id=f"evt_{row.id}",
                kind=row.kind,
                account=owners.get(row.subject),
                at=row.at,
                data={"subject": row.subject, "actor": row.actor, "reason": row.reason, "facts": row.data},
            )
            for row in rows
        ]

    def next_at(self, *, now: datetime) -> datetime | None:
        return None
