"""Holds the messages still to be sent: rows made in the transaction of their event, or by a cursor over a
feed.

A cursor and the rows it makes move in one transaction, and the same message is put in once for each endpoint:
killed at any point, nothing is lost and nothing is in the outbox twice.

What there is to tell of are feeds that grow at their end, read by a cursor that moves with the outbox. A
feed's positions become visible in growing order (all writers of the store wait for each other), so
"everything after the cursor" misses nothing and repeats nothing. Upper packages bring feeds of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, Row, and_, delete, func, insert, select, update

from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.values import new_id, value_class
from sandboxer.observe.events import events
from sandboxer.observe.webhooks import endpoints
from sandboxer.observe.webhooks.carrier import Outcome
from sandboxer.observe.webhooks.endpoints import TOPIC, Endpoint
from sandboxer.observe.webhooks.lifecycle import WAITING, DeliveryState, Signal, after_failure, next_state
from sandboxer.observe.webhooks.tables import webhook_attempts, webhook_cursors, webhook_deliveries
from sandboxer.store.databases import insert_unless_there
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

# Happenings fanned out in one transaction.
AT_ONCE = 100
KEPT = timedelta(days=30)
# A failing receiver is sent a message every few minutes: what piles up behind it is given up after so long.
WAITS = timedelta(days=7)
PRUNED_AT_ONCE = 500
# The accounts above each of these, for those that have any.
Above = Callable[[Connection, Collection[str]], Mapping[str, Sequence[str]]]
_d, _a, _c = webhook_deliveries.c, webhook_attempts.c, webhook_cursors.c


@value_class
class Delivery:
    seq: int
    id: str
    endpoint: str
    account: str
    lane: str
    message: str
    kind: str
    body: str = field(repr=False)
    url: str | None
    secret: bytes | None = field(repr=False)
    state: DeliveryState
    tries: int
    reason: str
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None


@value_class
class Attempt:
    at: datetime
    took_ms: int
    status: int | None
    outcome: str
    reason: str


# Says whose each subject is; those it does not know belong to the operator alone.
Owners = Callable[[Connection, Iterable[str]], Mapping[str, str]]


@value_class
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
        """Returns the newest position, where a feed begins that nobody listened to."""

    def read(self, conn: Connection, after: int, limit: int, *, now: datetime) -> Sequence[Happening]:
        """Returns what comes after a position, in order; empty when there is nothing more."""

    def next_at(self, *, now: datetime) -> datetime | None:
        """Returns when there will be more although nothing is written; None if only writes make more."""


def body_of(*, id: str, kind: str, account: str | None, at: datetime, data: Mapping[str, Any]) -> str:
    """Returns the JSON that is signed and sent, byte for byte the same at every try."""
    if endpoints.is_whole(kind):
        return json.dumps(dict(data), separators=(",", ":"), allow_nan=False)
    message = {"id": id, "type": kind, "timestamp": at.isoformat(), "account": account, "data": dict(data)}
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


def put(
    conn: Connection,
    *,
    endpoint: str,
    account: str,
    lane: str,
    message: str,
    kind: str,
    body: str,
    now: datetime,
    url: str | None = None,
    secret: bytes | None = None,
) -> Delivery:
    """Puts a message into the outbox, unless this endpoint has it already; returns what is there."""
    unless_there = insert_unless_there(conn.dialect.name, webhook_deliveries).on_conflict_do_nothing()
    row = {
        "id": new_id("dlv"),
        "endpoint": endpoint,
        "account": account,
        "lane": lane,
        "message": message,
        "kind": kind,
        "body": body,
        "url": url,
        "secret": secret,
        "state": DeliveryState.PENDING.value,
        "tries": 0,
        "reason": "",
        "created_at": now,
        "due_at": now,
    }
    conn.execute(unless_there.inline(), row)
    announce(conn, TOPIC)
    query = select(webhook_deliveries).where(_d.endpoint == endpoint, _d.message == message)
    return _delivery(conn.execute(query).one())


def lane_of(account: str, place: str) -> str:
    """Names the lane of a host of an account's one-shot messages. Names of accounts have no spaces."""
    return f"{account} {place}"


def start_feeds(conn: Connection, feeds: Sequence[Feed], *, now: datetime) -> None:
    """Sets the cursors to the present when the first endpoint appears, so that it does not get all older
    events.
    """
    for feed in feeds:
        conn.execute(delete(webhook_cursors).where(_c.feed == feed.name))
        _set_cursor(conn, feed.name, feed.last(conn, now=now))


def fan_out(
    conn: Connection, feeds: Sequence[Feed], *, now: datetime, above: Above = lambda conn, accounts: {}
) -> bool:
    """Puts the next events of each feed into the outbox; returns True if there may be more. They go to the
    endpoints of their account, of the accounts above it, and to those that receive everything.
    """
    if not endpoints.is_anyone_listening(conn):
        return False
    is_more = False
    for feed in feeds:
        after = _cursor(conn, feed, now)
        found = feed.read(conn, after, AT_ONCE, now=now)
        accounts = {happening.account for happening in found if happening.account is not None}
        lines = {account: (account, *ancestors) for account, ancestors in above(conn, accounts).items()}
        who = endpoints.listening(conn, accounts.union(*lines.values())) if found else []
        for happening in found:
            account = happening.account
            line = () if account is None else lines.get(account, (account,))
            _spread(conn, [one for one in who if one.hears(happening.kind, line)], happening, now)
        if found:
            conn.execute(
                update(webhook_cursors).where(_c.feed == feed.name).values(position=found[-1].position)
            )
            is_more = True
    return is_more


def has_news(conn: Connection, feeds: Sequence[Feed], *, now: datetime) -> bool:
    """Says whether a fan-out has anything to do."""
    for feed in feeds:
        after = conn.execute(select(_c.position).where(_c.feed == feed.name)).scalar()
        if after is None or feed.read(conn, after, 1, now=now):
            return True
    return False


def lanes_due(conn: Connection) -> dict[str, datetime]:
    """Returns each lane with something to send, and when its first message is due."""
    query = select(_d.lane, func.min(_d.due_at).label("due")).where(_d.due_at.is_not(None)).group_by(_d.lane)
    return {row.lane: row.due for row in conn.execute(query)}


def first_of(conn: Connection, lane: str, *, now: datetime) -> tuple[Delivery, Endpoint | None] | None:
    """Returns the next message of a lane, with its endpoint as it is now."""
    query = (
        select(webhook_deliveries)
        .where(_d.lane == lane, _d.due_at.is_not(None), _d.due_at <= now)
        .order_by(_d.due_at, _d.seq)
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else (_delivery(row), endpoints.find(conn, row.endpoint))


def conclude(
    conn: Connection, delivery_id: str, outcome: Outcome, *, began: datetime, now: datetime, chance: float
) -> Delivery | None:
    """Records how a try went. Returns None if the delivery was removed meanwhile."""
    values = {
        "delivery": delivery_id,
        "at": began,
        "took_ms": outcome.took_ms,
        "status": outcome.status,
        "outcome": "accepted" if outcome.failure is None else outcome.failure.value,
        "reason": outcome.reason,
    }
    conn.execute(insert(webhook_attempts), values)
    if (found := find(conn, delivery_id)) is None or found.state not in WAITING:
        # Withdrawn while it was on its way.
        return found
    tries = found.tries + 1
    if outcome.is_accepted:
        state, due = next_state(found.state, Signal.ACCEPTED), None
    else:
        verdict = after_failure(found.state, tries=tries, now=now, chance=chance, is_final=outcome.is_gone)
        state, due = verdict.state, verdict.due_at
    _move(conn, found, state, tries=tries, reason=outcome.reason, due_at=due, now=now)
    if outcome.is_gone:
        _switch_off(conn, found.endpoint, now)
    return find(conn, delivery_id)


def withdraw(conn: Connection, endpoint: str, *, reason: str, now: datetime) -> None:
    """Withdraws what waits for an endpoint that is removed or switched off."""
    query = select(webhook_deliveries).where(_d.endpoint == endpoint, _d.due_at.is_not(None))
    for row in conn.execute(query).all():
        found = _delivery(row)
        state = next_state(found.state, Signal.WITHDRAWN)
        _move(conn, found, state, tries=found.tries, reason=reason, due_at=None, now=now)


def redeliver(conn: Connection, endpoint: str, delivery_id: str, *, now: datetime) -> Delivery:
    """Sends a message again now, whatever became of it before."""
    if (found := find(conn, delivery_id)) is None or found.endpoint != endpoint:
        raise NotFound(what="delivery", id=delivery_id)
    state = next_state(found.state, Signal.REDELIVER)
    _move(conn, found, state, tries=0, reason="asked for again", due_at=now, now=now)
    announce(conn, TOPIC)
    again = find(conn, delivery_id)
    assert again is not None
    return again


def find(conn: Connection, delivery_id: str) -> Delivery | None:
    row = conn.execute(select(webhook_deliveries).where(_d.id == delivery_id)).one_or_none()
    return None if row is None else _delivery(row)


def page(
    conn: Connection, endpoint: str, *, before: int | None, limit: int, state: str | None = None
) -> list[Delivery]:
    """Newest first."""
    query = select(webhook_deliveries).where(_d.endpoint == endpoint)
    if before is not None:
        query = query.where(_d.seq < before)
    if state is not None:
        query = query.where(_d.state == state)
    return [_delivery(row) for row in conn.execute(query.order_by(_d.seq.desc()).limit(limit))]


def attempts_of(conn: Connection, deliveries: Sequence[str]) -> dict[str, list[Attempt]]:
    attempts: dict[str, list[Attempt]] = {id: [] for id in deliveries}
    query = select(webhook_attempts).where(_a.delivery.in_(deliveries)).order_by(_a.seq)
    for row in conn.execute(query):
        attempts[row.delivery].append(from_row(Attempt, row))
    return attempts


def prune(conn: Connection, *, now: datetime) -> bool:
    """Gives up some messages that wait too long, and removes some that ended long ago. Returns True if
    there may be more.
    """
    has_stale = _give_up_stale(conn, now)
    old = and_(_d.ended_at.is_not(None), _d.ended_at < now - KEPT)
    if ids := list(conn.execute(select(_d.id).where(old).limit(PRUNED_AT_ONCE)).scalars()):
        conn.execute(delete(webhook_attempts).where(_a.delivery.in_(ids)))
        conn.execute(delete(webhook_deliveries).where(_d.id.in_(ids)))
    return has_stale or len(ids) == PRUNED_AT_ONCE


def _give_up_stale(conn: Connection, now: datetime) -> bool:
    stale = and_(_d.due_at.is_not(None), _d.created_at < now - WAITS, _d.due_at < now)
    rows = conn.execute(select(webhook_deliveries).where(stale).limit(PRUNED_AT_ONCE)).all()
    for row in rows:
        found = _delivery(row)
        state = next_state(found.state, Signal.GIVEN_UP)
        reason = f"it could not be sent within {WAITS.days} days"
        _move(conn, found, state, tries=found.tries, reason=reason, due_at=None, now=now)
    return len(rows) == PRUNED_AT_ONCE


def _spread(conn: Connection, who: Sequence[Endpoint], happening: Happening, now: datetime) -> None:
    body = ""
    for endpoint in who:
        body = body or body_of(
            id=happening.id,
            kind=happening.kind,
            account=happening.account,
            at=happening.at,
            data=happening.data,
        )
        put(
            conn,
            endpoint=endpoint.id,
            account=endpoint.account,
            lane=lane_of(endpoint.account, endpoint.id),
            message=happening.id,
            kind=happening.kind,
            body=body,
            now=now,
        )


def _switch_off(conn: Connection, endpoint_id: str, now: datetime) -> None:
    """Switches an endpoint off whose receiver answered 410 Gone."""
    if (found := endpoints.find(conn, endpoint_id)) is None or not found.url or not found.enabled:
        return
    reason = "answered 410 Gone"
    changes = {"enabled": False, "disabled_reason": reason}
    endpoints.change(conn, found, changes, actor="system:webhooks", reason=reason, now=now)
    withdraw(conn, endpoint_id, reason=reason, now=now)


def _move(
    conn: Connection,
    delivery: Delivery,
    state: DeliveryState,
    *,
    tries: int,
    reason: str,
    due_at: datetime | None,
    now: datetime,
) -> None:
    values = {
        "state": state.value,
        "tries": tries,
        "reason": reason,
        "due_at": due_at,
        "ended_at": None if state in WAITING else now,
    }
    conn.execute(update(webhook_deliveries).where(_d.id == delivery.id).values(**values))


def _cursor(conn: Connection, feed: Feed, now: datetime) -> int:
    if (found := conn.execute(select(_c.position).where(_c.feed == feed.name)).scalar()) is None:
        found = feed.last(conn, now=now)
        _set_cursor(conn, feed.name, found)
    return int(found)


def _set_cursor(conn: Connection, feed: str, position: int) -> None:
    conn.execute(insert(webhook_cursors).inline(), {"feed": feed, "position": position})


def _delivery(row: Row[Any]) -> Delivery:
    return from_row(Delivery, row, state=DeliveryState(row.state))


class EventFeed:
    """Feeds the event log to webhooks."""

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
