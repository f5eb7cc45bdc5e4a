"""What the platform remembers of a session: the value, its table, and the few queries on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from sandboxer.observe import events
from sandboxer.store.metadata import UtcDateTime, metadata
from sandboxer.store.paging import newest_first, next_cursor
from sandboxer.store.sealed import SealedJson
from sandboxer.work.sessions.lifecycle import State
from sandboxer.work.sessions.lifetime import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    # Whose it is: always its sandbox's.
    account: str
    created_by: str
    name: str | None
    sandbox_id: str
    # Its sandbox was made for it, and ends with it.
    owns_sandbox: bool
    language: str
    state: State
    reason: str
    # Of the keeper in the sandbox; each start has its own.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    sessions: Sequence[Session]
    # Give it back to see what follows; None at the end.
    next_cursor: str | None


sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
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
_PLAIN = tuple(field.name for field in fields(Session) if field.name not in ("state", "idle"))


def insert_session(conn: Connection, session: Session) -> None:
    conn.execute(insert(sessions), _to_row(session))
    _tell(conn, session, session.created_by, session.created_at)


def replace_session(conn: Connection, session: Session, *, actor: str, now: datetime) -> None:
    """With its event: one server owns the book, so nobody else can have written first."""
    save_session(conn, session)
    _tell(conn, session, actor, now)


def save_session(conn: Connection, session: Session) -> None:
    conn.execute(update(sessions).where(sessions.c.id == session.id), _to_row(session))


def load_session(conn: Connection, session_id: str) -> Session | None:
    row = conn.execute(select(sessions).where(sessions.c.id == session_id)).one_or_none()
    return None if row is None else _from_row(row)


def load_living(conn: Connection) -> list[Session]:
    rows = conn.execute(select(sessions).where(sessions.c.state != State.ENDED.value))
    return [_from_row(row) for row in rows]


def load_page(
    conn: Connection,
    *,
    account: str | None,
    sandbox_id: str | None,
    state: State | None,
    cursor: str | None,
    limit: int,
) -> Page:
    """Newest first. Without `state`, ended ones are left out."""
    query = select(sessions)
    if account is not None:
        query = query.where(sessions.c.account == account)
    if sandbox_id is not None:
        query = query.where(sessions.c.sandbox_id == sandbox_id)
    wanted = sessions.c.state != State.ENDED.value if state is None else sessions.c.state == state.value
    query = query.where(wanted)
    query = newest_first(query, sessions, cursor=cursor, limit=limit)
    found = [_from_row(row) for row in conn.execute(query)]
    return Page(sessions=found[:limit], next_cursor=next_cursor(found, limit))


def prune(conn: Connection, before: datetime, limit: int) -> int:
    """Some of those that ended before; how many."""
    old = select(sessions.c.id).where(sessions.c.state == State.ENDED.value, sessions.c.ended_at < before)
    ids = [row.id for row in conn.execute(old.limit(limit))]
    conn.execute(delete(sessions).where(sessions.c.id.in_(ids)))
    return len(ids)


def _tell(conn: Connection, session: Session, actor: str, now: datetime) -> None:
    # About the sandbox: whoever may see that one may hear of what lives in it.
    events.record(
        conn,
        subject=session.sandbox_id,
        kind=f"session.{session.state.value}",
        actor=actor,
        reason=session.reason,
        at=now,
        data={"session_id": session.id, "language": session.language, "generation": session.generation},
    )


def _to_row(session: Session) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(session, name) for name in _PLAIN}
    return {**row, "state": session.state.value, "idle_s": session.idle.total_seconds()}


def _from_row(row: Row[tuple[object, ...]]) -> Session:
    cells = row._mapping
    plain = {name: cells[name] for name in _PLAIN}
    return Session(**plain, state=State(cells["state"]), idle=timedelta(seconds=cells["idle_s"]))
