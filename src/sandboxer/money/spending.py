"""What each key of an account has spent, day by day: what spending caps count without adding up a history.

One row for each account, key and day, kept in the transaction of what was spent: a meter's segment is spread
over the days it touched, a gift or a budget counts on its day. A key's whole life is then a row for each of
its days, however many transfers there were.

`key` is the public key (or the wallet's address) of who asked; empty where nobody in particular did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, func, select
from sqlalchemy.dialects import postgresql, sqlite

from sandboxer.money.accrual import Position, counted_nsats
from sandboxer.money.amounts import NSATS_PER_MSAT, NSATS_PER_SAT, Msats, Nsats, Rate, Sats
from sandboxer.money.meters import nsats_between
from sandboxer.money.tables import meter_segments, meters, spent_days

_DAY = timedelta(days=1)
_columns = spent_days.c


def day_of(now: datetime) -> datetime:
    """The midnight that began this day, in UTC as all our moments are."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def spread(rate: Rate, began: datetime, ended: datetime) -> Iterator[tuple[datetime, Nsats]]:
    """What a time at a rate cost on each day it touched; the days add up to the whole exactly. Pure."""
    while began < ended:
        day = day_of(began)
        until = min(ended, day + _DAY)
        yield day, nsats_between(rate, began, until)
        began = until


def count_use(
    conn: Connection, owner: str, key: str, *, rate: Rate, began: datetime, ended: datetime, msats: Msats = 0
) -> None:
    """A segment was written: its days count it."""
    days = dict(spread(rate, began, ended)) if rate else {}
    if msats:
        days[day_of(ended)] = days.get(day_of(ended), 0) + msats * NSATS_PER_MSAT
    _add(conn, owner, key, {day: (*divmod(nsats, NSATS_PER_SAT), 0) for day, nsats in days.items()})


def count_move(conn: Connection, owner: str, key: str, sats: Sats, *, at: datetime) -> None:
    """Sats were given away by this key; below zero: they came back."""
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
    """What an account, or one key of it, had spent by `now`; in all, or on the day that began at `day`.

    `position` is that of its bucket at `now`: an open meter counts as far as it is charged. Reads the rows of
    its days, its open meters, and of its segments only those that ended after `now`.
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
    """What all that a key runs costs a second."""
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
    # More may come back on a day than was given on it: nothing was spent then, not less than nothing.
    return (sats + max(0, moved)) * NSATS_PER_SAT + nsats


def _after(
    conn: Connection, owner: str, key: str | None, since: datetime, now: datetime, until: datetime | None
) -> Nsats:
    """What its days count and `now` does not know yet: whoever comes late looks back."""
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
    insert = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(spent_days)
    sums = {
        name: spent_days.c[name] + insert.excluded[name] for name in ("used_sats", "used_nsats", "moved_sats")
    }
    return insert.on_conflict_do_update(index_elements=["account", "key", "day"], set_=sums).inline()
