"""The stored meters, the segments they leave, and the spending per key and day that follows from both.

The charge is rate × time of all segments and open meters, to the nanosat. A pause is a time that nobody pays
for: it ends a segment, and the meter goes on after it. If it turns out later that the meter had ended before
a pause, segments with a rate below zero give back what was charged too much: nothing that was written is
changed. The time of such a segment counts below zero as well (`used_us`).

Spending is counted per account, key and day, so that caps need not add up a whole history. The rows are
written in the transaction of what was spent: a segment is spread over the days it touched, a gift or a budget
counts on its day. `key` is the public key (or the wallet's address) of who asked; empty where nobody in
particular did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Row, func, insert, select, update

from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import (
    NSATS_PER_MSAT,
    NSATS_PER_SAT,
    Msats,
    Nsats,
    Rate,
    Sats,
    microseconds,
)
from sandboxer.money.policy import Use, nsats_between
from sandboxer.money.records import Position, Span, counted_nsats
from sandboxer.money.tables import meter_segments, meters, spent_days
from sandboxer.store.databases import insert_unless_there
from sandboxer.store.rows import from_row

_DAY = timedelta(days=1)
# How the id of a segment ends that gives back another one, or a part of it.
_BACK = ":back"
_columns = spent_days.c


def day_of(now: datetime) -> datetime:
    """Return the midnight, in UTC, that began this day."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def spread(rate: Rate, began: datetime, ended: datetime) -> Iterator[tuple[datetime, Nsats]]:
    """Yield what a time at a rate cost on each day it touched. The days add up to the whole exactly. Pure."""
    while began < ended:
        day = day_of(began)
        until = min(ended, day + _DAY)
        yield day, nsats_between(rate, began, until)
        began = until


def count_use(
    conn: Connection, owner: str, key: str, *, rate: Rate, began: datetime, ended: datetime, msats: Msats = 0
) -> None:
    """Add a written segment to the days it touched."""
    days = dict(spread(rate, began, ended)) if rate else {}
    if msats:
        days[day_of(ended)] = days.get(day_of(ended), 0) + msats * NSATS_PER_MSAT
    _add(conn, owner, key, {day: (*divmod(nsats, NSATS_PER_SAT), 0) for day, nsats in days.items()})


def count_move(conn: Connection, owner: str, key: str, sats: Sats, *, at: datetime) -> None:
    """Add sats that this key gave away; below zero means that they came back."""
    _add(conn, owner, key, {day_of(at): (0, 0, sats)})


def spent(
    conn: Connection,
    owner: str,
    position: Position,
    *,
    now: datetime,
    key: str | None = None,
    day: datetime | None = None,
) -> Nsats:
    """Return what an account, or one of its keys, had spent by `now`: in all, or on the day that began at
    `day`.

    `position` is that of its bucket at `now`: an open meter counts as far as it is charged. Only the rows of
    its days, its open meters and the segments that ended after `now` are read.
    """
    total = _counted(conn, owner, key, day)
    since, until = (day, day + _DAY) if day is not None else (datetime.min.replace(tzinfo=UTC), None)
    running = select(meters.c.rate_msats, meters.c.began_at).where(
        meters.c.owner == owner, meters.c.closed_at.is_(None), meters.c.rate_msats > 0
    )
    if key is not None:
        running = running.where(meters.c.key == key)
    end = now if until is None else min(now, until)
    for rate, began in conn.execute(running):
        total += counted_nsats(position, rate, max(began, since), end)
    return total - _after(conn, owner, key, since, now, until)


def rate_of(conn: Connection, owner: str, key: str) -> Rate:
    """Return what everything that a key runs costs per second."""
    query = select(func.sum(meters.c.rate_msats)).where(
        meters.c.owner == owner, meters.c.key == key, meters.c.closed_at.is_(None)
    )
    return int(conn.execute(query).scalar() or 0)


def _counted(conn: Connection, owner: str, key: str | None, day: datetime | None) -> Nsats:
    query = select(
        func.sum(_columns.used_sats), func.sum(_columns.used_nsats), func.sum(_columns.moved_sats)
    ).where(_columns.account == owner)
    if key is not None:
        query = query.where(_columns.key == key)
    if day is not None:
        query = query.where(_columns.day == day)
    sats, nsats, moved = (int(sum_ or 0) for sum_ in conn.execute(query).one())
    # On a day more may come back than was given away; that counts as zero, not as less.
    return (sats + max(0, moved)) * NSATS_PER_SAT + nsats


def _after(
    conn: Connection, owner: str, key: str | None, since: datetime, now: datetime, until: datetime | None
) -> Nsats:
    """Return what the days count that happened after `now`, for a caller that looks back in time."""
    segment = meter_segments.c
    query = select(meter_segments).where(segment.owner == owner, segment.ended_at > now)
    if key is not None:
        query = query.where(segment.key == key)
    nsats = 0
    for row in conn.execute(query):
        ended = row.ended_at if until is None else min(row.ended_at, until)
        nsats += nsats_between(row.rate_msats, max(row.began_at, now, since), ended)
        if row.msats and (until is None or row.ended_at < until):
            nsats += row.msats * NSATS_PER_MSAT
    return nsats


def _add(conn: Connection, owner: str, key: str, days: Mapping[datetime, tuple[Sats, Nsats, Sats]]) -> None:
    rows: list[dict[str, Any]] = [
        {"account": owner, "key": key, "day": day, "used_sats": s, "used_nsats": n, "moved_sats": m}
        for day, (s, n, m) in days.items()
        if s or n or m
    ]
    if rows:
        conn.execute(_add_up(conn.dialect.name), rows)


@cache
def _add_up(dialect: str) -> Insert:
    insert = insert_unless_there(dialect, spent_days)
    sums = {
        name: spent_days.c[name] + insert.excluded[name] for name in ("used_sats", "used_nsats", "moved_sats")
    }
    return insert.on_conflict_do_update(index_elements=["account", "key", "day"], set_=sums).inline()


@value_class
class Meter:
    id: str
    owner: str
    subject: str
    use: Use
    rate: Rate
    # Since when at this rate, or since its last pause.
    began_at: datetime
    # Since when at this rate, pauses or not.
    rated_at: datetime
    closed_at: datetime | None
    segments: int
    step: int
    # The public key that asked for it; the cost counts for that key's caps.
    key: str = ""


def meter_of(row: Row[Any]) -> Meter:
    since = row.rated_at or row.began_at
    return from_row(Meter, row, use=Use(row.kind), rate=row.rate_msats, rated_at=since)


def pause_meters(conn: Connection, owner: str, spans: Iterable[Span], *, with_free: bool = False) -> None:
    """Pause every open meter of the owner that costs something during these times.

    With `with_free`, meters that cost nothing pause too: their rate may later be found to have changed
    before.
    """
    running = select(meters).where(meters.c.owner == owner, meters.c.closed_at.is_(None))
    if not with_free:
        running = running.where(meters.c.rate_msats > 0)
    for began, ended in spans:
        for row in conn.execute(running.order_by(meters.c.id)).all():
            if row.began_at < ended:
                _pause(conn, meter_of(row), began, ended)


def add_segment(conn: Connection, meter: Meter, ended: datetime) -> None:
    """Write what the meter used since its present rate began, or since its last pause."""
    if meter.use is not Use.NOTHING:
        _write(conn, meter, f"{meter.id}:{meter.segments}", meter.rate, meter.began_at, ended)


def give_back(conn: Connection, meter: Meter, ended: datetime) -> Nsats:
    """Give back what was charged after `ended`, before which the rate had ended.

    Returns nanosats below zero.
    """
    segment = meter_segments.c
    later = select(meter_segments).where(
        segment.subject == meter.subject,
        segment.ended_at > ended,
        segment.id.like(f"{meter.id}:%"),
        segment.rate_msats == meter.rate,
    )
    nsats = 0
    for row in conn.execute(later.order_by(segment.seq)).all():
        began = max(row.began_at, ended)
        _write(conn, meter, f"{row.id}{_BACK}", -meter.rate, began, row.ended_at)
        nsats -= nsats_between(meter.rate, began, row.ended_at)
    return nsats


def used_us(id: str, began: datetime, ended: datetime) -> int:
    """Return the microseconds of a segment or meter; below zero if the segment gives time back.

    Its id tells, because what costs nothing has no rate that could.
    """
    span = max(0, microseconds(ended - began))
    return -span if id.endswith(_BACK) else span


def _pause(conn: Connection, meter: Meter, began: datetime, ended: datetime) -> None:
    values: dict[str, Any] = {"began_at": ended, "rated_at": meter.rated_at}
    if meter.began_at < began:
        add_segment(conn, meter, began)
        values["segments"] = meter.segments + 1
    conn.execute(update(meters).where(meters.c.id == meter.id).values(**values))


def _write(conn: Connection, meter: Meter, id: str, rate: Rate, began: datetime, ended: datetime) -> None:
    values = {
        "id": id,
        "owner": meter.owner,
        "subject": meter.subject,
        "kind": meter.use.value,
        "rate_msats": rate,
        "began_at": began,
        "ended_at": ended,
        "msats": 0,
        "key": meter.key,
    }
    conn.execute(insert(meter_segments).inline(), values)
    count_use(conn, meter.owner, meter.key, rate=rate, began=began, ended=ended)
