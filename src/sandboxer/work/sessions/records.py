"""A session: the table of its states, its times, and its rows. What its sandbox does (freeze above all) is
the sandbox's own state.

starting ──ready──> ready ──interpreter gone──> died ──restart──> starting
                      └────── found, with the memory of its sandbox ──────┘ (back to ready)
    └──────────────────┴──────── over ───────────┴──> ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Boolean, Column, Connection, Float, Index, Integer, Table, Text, update

from sandboxer.kernel.values import value_class
from sandboxer.store.metadata import UtcDateTime, metadata, required
from sandboxer.store.rows import Record, Rows, enumerated, seconds
from sandboxer.store.sealed import SealedJson
from sandboxer.store.steps import Lifecycle


class State(StrEnum):
    # The interpreter, and perhaps its sandbox, is being started.
    STARTING = "starting"
    READY = "ready"
    # Its interpreter is gone with all its state; the session can be restarted.
    DIED = "died"
    ENDED = "ended"


class Signal(StrEnum):
    ANSWERED = "answered"
    GONE = "gone"
    RESTART = "restart"
    END = "end"
    # Its interpreter goes on: it was kept with the memory of its sandbox.
    FOUND = "found"


S, E = State, Signal
TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (S.STARTING, E.ANSWERED): S.READY,
    **{(s, E.GONE): S.DIED for s in (S.STARTING, S.READY)},
    **{(s, E.RESTART): S.STARTING for s in (S.READY, S.DIED)},
    **{(s, E.FOUND): S.READY for s in (S.STARTING, S.READY, S.DIED)},
    **{(s, E.END): S.ENDED for s in (S.STARTING, S.READY, S.DIED)},
}


LIFECYCLE = Lifecycle(TRANSITIONS, ended=frozenset({S.ENDED}))


TTL_DEFAULT = timedelta(hours=1)
TTL_MAX = timedelta(hours=24)
IDLE_DEFAULT = timedelta(minutes=15)
# How much every cell extends the session.
ACTIVITY_ADDS = timedelta(minutes=15)


@value_class
class Session(Record):
    """The record of a session. Its account is that of its sandbox."""

    name: str | None
    sandbox_id: str
    # Whether its sandbox was made for it and ends with it.
    owns_sandbox: bool
    language: str
    state: State
    # The id of the keeper process; each start has its own.
    process_id: str
    generation: int
    env: Mapping[str, str]
    cwd: str | None
    idle: timedelta
    expires_at: datetime
    last_active_at: datetime
    ended_at: datetime | None = None


def bumped(session: Session, *, now: datetime) -> Session:
    """Returns the session after an activity: its end moves, but never past the longest life."""
    longest = session.created_at + TTL_MAX
    moved = max(session.expires_at, min(session.expires_at + ACTIVITY_ADDS, longest))
    return replace(session, expires_at=moved, last_active_at=max(now, session.last_active_at))


def end_due(session: Session, *, is_busy: bool, is_frozen: bool, now: datetime) -> str | None:
    """Returns why the session is over, or None if it is not. While frozen its end still comes nearer, but it
    does not count as idle; a running cell does not count as idle either.
    """
    if now >= session.expires_at:
        return "ttl"
    if not is_busy and not is_frozen and now >= session.last_active_at + session.idle:
        return "idle"
    return None


def look_at(session: Session) -> datetime:
    """Returns when to look next."""
    return min(session.expires_at, session.last_active_at + session.idle)


sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False, server_default="0"),
    *required(Text, "account", "created_by"),
    Column("name", Text),
    Column("sandbox_id", Text, nullable=False),
    Column("owns_sandbox", Boolean, nullable=False),
    *required(Text, "language", "state", "reason", "process_id"),
    Column("generation", Integer, nullable=False),
    Column("env", SealedJson("sessions.env"), nullable=False),
    Column("cwd", Text),
    Column("idle_s", Float, nullable=False),
    *required(UtcDateTime, "created_at", "expires_at", "last_active_at"),
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
