"""Keeps the first answer to a request with an Idempotency-Key and gives it to whoever repeats the request.

begin ──> Fresh    do the work, then `finish` (keep the answer), `spend` (done, but the answer holds a secret)
      │            or `abandon` (failed by our fault, or 402: may be tried again). In the transaction that
      │            makes something, `bind` the key to it: then a crash before `finish` loses nothing
      ├─> Made     whoever began is gone, but this was made: tell of it, then `finish`
      ├─> Replay   give this answer again
      ├─> Spent    it was done; its answer was not kept
      ├─> Dropped  it was done; its answer was kept until there were too many (`kept_answers.py`)
      └─> InFlight somebody is at it: 409, come back
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Case,
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Table,
    Text,
    case,
    delete,
    insert,
    select,
    update,
)

from sandboxer.kernel.errors import Conflict, IdempotencyConflict, Unavailable
from sandboxer.kernel.values import value_class
from sandboxer.store.engine import Store
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata, required
from sandboxer.store.sealed import SealedBytes

log = logging.getLogger(__name__)
KEPT_FOR = timedelta(hours=24)
# Longer than any request may take (code runs for 15 minutes, a service starts for as long): whoever began and
# is silent for this long has died.
IN_FLIGHT_FOR = timedelta(minutes=20)
_PRUNE_AT_ONCE = 500
MOST_UNSETTLED = 10_000

# Made: bound to something, and nobody is at work on the answer.
_IN_FLIGHT, _DONE, _SPENT, _MADE, _DROPPED = "in_flight", "done", "spent", "made", "dropped"

idempotency = Table(
    "idempotency",
    metadata,
    # Whose key it is, and on which route: two accounts may choose the same key.
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    # Fences `finish`: one who was given up must not overwrite his successor's answer.
    *required(Text, "claim", "request_hash", "state"),
    Column("status", Integer, nullable=True),
    Column("headers", JsonValue, nullable=True),
    # Sealed: the answer may repeat what was given in confidence, such as a service's environment.
    Column("body", SealedBytes("idempotency.body"), nullable=True),
    *required(UtcDateTime, "begun_at", "expires_at"),
    # The id of what was made under it, written with the thing itself.
    Column("made", Text, nullable=True),
    # Whose answer it is (the scope's first word), and how much of the database its body takes.
    Column("owner", Text, nullable=False, server_default=""),
    Column("bytes", Integer, nullable=False, server_default="0"),
    Index(None, "expires_at"),
    Index("ix_idempotency_kept", "owner", "begun_at", "bytes"),
)


@value_class
class Fresh:
    """The key is claimed by this caller, who does the work and hands this to `finish`, `spend` or
    `abandon`.
    """

    scope: str
    key: str
    claim: str


@value_class
class Replay:
    status: int
    headers: Mapping[str, str]
    body: bytes


@value_class
class Spent:
    at: datetime


@value_class
class Dropped:
    at: datetime
    # The id of what was made, where it has one.
    made: str | None


@value_class
class Made:
    """An earlier request made the thing and never answered; this caller answers for it. Hand on `fresh`
    as if it had begun.
    """

    id: str
    fresh: Fresh


@value_class
class InFlight:
    since: datetime
    retry_after_s: int = 1


Begun = Fresh | Replay | Spent | Dropped | Made | InFlight
# Called in the transaction that makes the thing, with its id.
Bind = Callable[[Connection, str], None]
# The same for one of several things made under one key, with its number.
BindOne = Callable[[Connection, int, str], None]
# What becomes of a key whose request came to nothing: `abandon` or `leave`.
Ending = Callable[[Connection, Fresh], object]


def new_claim() -> str:
    return secrets.token_hex(16)


def begin(
    conn: Connection, *, scope: str, key: str, request_hash: str, now: datetime, claim: str | None = None
) -> Begun:
    """Claims the key, or says what became of it. Raises IdempotencyConflict for another request's key.

    Who chooses the claim beforehand can let go of it though it never learnt whether this was committed.
    """
    row = conn.execute(
        select(idempotency).where(idempotency.c.scope == scope, idempotency.c.key == key)
    ).one_or_none()
    if row is not None and not _is_over(row, now):
        if row.request_hash != request_hash:
            raise IdempotencyConflict(key=key)
        return _take_over(conn, row, now) if _is_left(row, now) else _found(row)
    if row is not None:
        conn.execute(delete(idempotency).where(idempotency.c.scope == scope, idempotency.c.key == key))
    fresh = Fresh(scope=scope, key=key, claim=claim or new_claim())
    conn.execute(
        insert(idempotency).values(
            scope=scope,
            key=key,
            claim=fresh.claim,
            request_hash=request_hash,
            state=_IN_FLIGHT,
            begun_at=now,
            expires_at=now + KEPT_FOR,
            owner=owner_of(scope),
        )
    )
    return fresh


def owner_of(scope: str) -> str:
    return scope.partition(" ")[0]


def finish(conn: Connection, fresh: Fresh, *, status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """Keeps the answer for repetitions. Returns False if the claim was lost meanwhile (the answer still
    stands).
    """
    kept = {"status": status, "headers": dict(headers), "body": body, "bytes": len(body)}
    return _settle(conn, fresh, state=_DONE, **kept)


def spend(conn: Connection, fresh: Fresh) -> bool:
    """Records that it was done and must not be repeated, without its answer, which holds a secret."""
    return _settle(conn, fresh, state=_SPENT)


def bind(conn: Connection, fresh: Fresh, made: str | Case[str]) -> None:
    """Binds the key to a thing, in the transaction that makes it. Raises Conflict if the key was given up
    meanwhile.
    """
    if not _settle(conn, fresh, made=made):
        raise Conflict(
            why="the request that wanted this was given up", hint="Repeat it with the same Idempotency-Key."
        )


def bind_one_more(conn: Connection, fresh: Fresh, made: str) -> None:
    """Does the same as `bind` beside what is bound already, for several things under one key. No word may
    have spaces.
    """
    before = idempotency.c.made
    bind(conn, fresh, case((before.is_(None), made), else_=before + f" {made}"))


def numbered(bind: Bind) -> BindOne:
    """Binds things of one key by their numbers."""
    return lambda conn, number, made: bind(conn, f"{number}={made}")


def leave(conn: Connection, fresh: Fresh) -> None:
    """Records that nobody waits for the answer any more. What was made stays bound; nothing more is bound."""
    conn.execute(delete(idempotency).where(*_is_ours(fresh), idempotency.c.made.is_(None)))
    _settle(conn, fresh, state=_MADE)


def abandon(conn: Connection, fresh: Fresh) -> bool:
    """Records that nothing was done, so that the same key may be tried again."""
    return conn.execute(delete(idempotency).where(*_is_ours(fresh))).rowcount == 1


def abandon_all_in_flight(conn: Connection) -> int:
    """Gives up, at a start, every claim that a dead process left."""
    is_at_work = idempotency.c.state == _IN_FLIGHT
    gone = conn.execute(delete(idempotency).where(is_at_work, idempotency.c.made.is_(None))).rowcount
    conn.execute(update(idempotency).where(is_at_work).values(state=_MADE))
    return gone


def drop(conn: Connection, keys: Sequence[tuple[str, str]]) -> None:
    """Removes the answers under these scopes and keys, but not the fact that they were given."""
    gone = {"state": _DROPPED, "body": None, "headers": None, "bytes": 0}
    for scope, key in keys:
        mine = (idempotency.c.scope == scope, idempotency.c.key == key, idempotency.c.state == _DONE)
        conn.execute(update(idempotency).where(*mine).values(**gone))


def prune(conn: Connection, *, now: datetime) -> int:
    """Removes some of what has expired; returns how many. More may be left unless it returns 0."""
    due = (
        select(idempotency.c.scope, idempotency.c.key)
        .where(idempotency.c.expires_at <= now)
        .limit(_PRUNE_AT_ONCE)
    )
    rows = conn.execute(due).all()
    for scope, key in rows:
        conn.execute(delete(idempotency).where(idempotency.c.scope == scope, idempotency.c.key == key))
    return len(rows)


class Unsettled:
    """Remembers what could not be written about keys while the database was away. The next `begin` makes up
    for it, so that a key is neither stuck for as long as a request may take, nor free although its work was
    done.
    """

    def __init__(self) -> None:
        self._waiting: list[Callable[[Connection], object]] = []

    async def settle(self, store: Store, act: Callable[[Connection], object]) -> None:
        """Writes it now or, if that fails, later. Each act is fenced by its claim and does nothing the
        second time.
        """
        try:
            await store.write(act)
        except Unavailable as error:
            log.warning("an idempotency key is settled later: %s", error)
            self.later(act)

    def later(self, act: Callable[[Connection], object]) -> None:
        if len(self._waiting) >= MOST_UNSETTLED:
            log.error("too many idempotency keys wait to be settled; the oldest is given up")
            del self._waiting[0]
        self._waiting.append(act)

    async def begin(self, store: Store, first: Callable[[Connection], Begun]) -> Begun:
        """Runs `first` in one transaction, after what is still to be written."""
        waiting = tuple(self._waiting)

        def all_of_it(conn: Connection) -> Begun:
            for act in waiting:
                act(conn)
            return first(conn)

        begun = await store.write(all_of_it)
        self._waiting = [act for act in self._waiting if act not in waiting]
        return begun


def _is_over(row: Row[Any], now: datetime) -> bool:
    if row.state == _IN_FLIGHT and row.made is None:
        return bool(now - row.begun_at >= IN_FLIGHT_FOR)
    return bool(now >= row.expires_at)


def _is_left(row: Row[Any], now: datetime) -> bool:
    has_died = row.state == _IN_FLIGHT and now - row.begun_at >= IN_FLIGHT_FOR
    return row.made is not None and bool(row.state == _MADE or has_died)


def _take_over(conn: Connection, row: Row[Any], now: datetime) -> Made:
    fresh = Fresh(scope=row.scope, key=row.key, claim=new_claim())
    conn.execute(
        update(idempotency)
        .where(idempotency.c.scope == row.scope, idempotency.c.key == row.key)
        .values(claim=fresh.claim, state=_IN_FLIGHT, begun_at=now)
    )
    return Made(id=row.made, fresh=fresh)


def _found(row: Row[Any]) -> Begun:
    if row.state == _IN_FLIGHT:
        return InFlight(since=row.begun_at)
    if row.state == _SPENT:
        return Spent(at=row.begun_at)
    if row.state == _DROPPED:
        return Dropped(at=row.begun_at, made=row.made)
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
