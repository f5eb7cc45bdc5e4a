"""Sessions as rows: the value, its table, and the few queries on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    Table,
    Text,
    delete,
    select,
    update,
)

from sandboxer.store.metadata import UtcDateTime, metadata
from sandboxer.store.rows import Page, Rows, enumerated, seconds
from sandboxer.store.sealed import SealedJson
from sandboxer.work.sessions.lifecycle import Span, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    # Grows by one with every write; a write from an older version is refused.
    version: int = 0
    # The account of its sandbox.
    account: str
    created_by: str
    name: str | None
    sandbox_id: str
    # Whether its sandbox was made for it and ends with it.
    owns_sandbox: bool
    language: str
    state: State
    reason: str
    # The id of the keeper process; each start has its own.
    process_id: str
    generation: int
    env: Mapping[str, str]
    cwd: str | None
    idle: timedelta
    created_at: datetime
    expires_at: datetime
    last_active_at: datetime
    ended_at: datetime | None = None

    @property
    def span(self) -> Span:
        return Span(
            began=self.created_at,
            expires_at=self.expires_at,
            idle=self.idle,
            last_active=self.last_active_at,
        )


sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("account", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("name", Text),
    Column("sandbox_id", Text, nullable=False),
    Column("owns_sandbox", Boolean, nullable=False),
    Column("language", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("process_id", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("env", SealedJson("sessions.env"), nullable=False),
    Column("cwd", Text),
    Column("idle_s", Float, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("last_active_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Index(None, "account", "created_at", "id"),
    Index(None, "state"),
    Index(None, "sandbox_id"),
)
rows = Rows(
    sessions,
    Session,
    prefix="ses_",
    over=[State.ENDED],
    cells={"state": enumerated(State), "idle": seconds("idle_s")},
)


def save_span(conn: Connection, session: Session) -> None:
    """Writes the end as activities moved it. This is no step and is not fenced by the version."""
    times = {"expires_at": session.expires_at, "last_active_at": session.last_active_at}
    conn.execute(update(sessions).where(sessions.c.id == session.id).values(**times))


def load_page(
    conn: Connection,
    *,
    account: str | None,
    sandbox_id: str | None,
    state: State | None,
    cursor: str | None,
    limit: int,
) -> Page[Session]:
    """Returns sessions, newest first. Without `state`, ended ones are left out."""
    query = rows.select
    if account is not None:
        query = query.where(sessions.c.account == account)
    if sandbox_id is not None:
        query = query.where(sessions.c.sandbox_id == sandbox_id)
    query = query.where(rows.is_left if state is None else sessions.c.state == state.value)
    return rows.page(conn, query, cursor=cursor, limit=limit)


def prune(conn: Connection, before: datetime, limit: int) -> int:
    """Deletes some of the sessions that ended before that moment and returns how many."""
    old = select(sessions.c.id).where(sessions.c.state == State.ENDED.value, sessions.c.ended_at < before)
    ids = [row.id for row in conn.execute(old.limit(limit))]
    conn.execute(delete(sessions).where(sessions.c.id.in_(ids)))
    return len(ids)
