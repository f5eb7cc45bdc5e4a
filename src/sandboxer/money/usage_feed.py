"""The usage feeds are for outside billing: closed segments one by one, and each day's sum when it is over.

Both are read from what the meters wrote anyway, so they cost no write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, select, union

from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import NSATS_PER_MSAT
from sandboxer.money.policy import nsats_between
from sandboxer.money.segments import used_us
from sandboxer.money.statements import UsageLine, usage
from sandboxer.money.tables import meter_segments, meters
from sandboxer.observe.webhooks.outbox import Happening
from sandboxer.store.rows import from_row

MAX_PAGE = 500
DAY = timedelta(days=1)
# A sandbox found dead ends a little in the past; a day's sum must not be reported before that.
SETTLING = timedelta(minutes=15)
# After a long silence so many days are reported; older ones can be read through the API.
MOST_DAYS = 31
_s = meter_segments.c


@value_class
class Segment:
    seq: int
    id: str
    account: str
    subject: str
    use: str
    rate_msats: int
    began_at: datetime
    ended_at: datetime
    # Both are below zero if it gives back what an earlier one had counted.
    seconds_us: int
    msats: int


def segments_page(
    conn: Connection,
    *,
    owner: str | None,
    after: int = 0,
    limit: int = MAX_PAGE,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Segment]:
    """Return closed segments in the order they were closed; of every account if `owner` is None."""
    query = select(meter_segments).where(_s.seq > after)
    if owner is not None:
        query = query.where(_s.owner == owner)
    if since is not None:
        query = query.where(_s.ended_at >= since)
    if until is not None:
        query = query.where(_s.ended_at < until)
    rows = conn.execute(query.order_by(_s.seq).limit(max(1, min(limit, MAX_PAGE))))
    return [_segment(row) for row in rows]


def as_json(segment: Segment) -> dict[str, Any]:
    return {
        "seq": segment.seq,
        "id": segment.id,
        "account": segment.account,
        "subject": segment.subject,
        "use": segment.use,
        "rate_msats": segment.rate_msats,
        "began_at": segment.began_at.isoformat(),
        "ended_at": segment.ended_at.isoformat(),
        "seconds": segment.seconds_us / 1_000_000,
        "msats": segment.msats,
    }


class SegmentFeed:
    """Reports `usage.segment`: one for each time at one rate, when it is over, and one for each single
    charge.
    """

    name = "usage"

    def last(self, conn: Connection, *, now: datetime) -> int:
        return conn.execute(select(func.max(_s.seq))).scalar() or 0

    def read(self, conn: Connection, after: int, limit: int, *, now: datetime) -> Sequence[Happening]:
        return [
            Happening(
                position=segment.seq,
                id=f"use_{segment.seq}",
                kind="usage.segment",
                account=segment.account,
                at=segment.ended_at,
                data=as_json(segment),
            )
            for segment in segments_page(conn, owner=None, after=after, limit=limit)
        ]

    def next_at(self, *, now: datetime) -> datetime | None:
        return None


class DailyFeed:
    """Reports `usage.daily`, what an account used on a day (UTC), once that day is over. The operator then
    gets `usage.day_closed`: nothing more will come for that day. A position in this feed is a day.
    """

    name = "usage.daily"

    def last(self, conn: Connection, *, now: datetime) -> int:
        return _last_whole_day(now).toordinal()

    def read(self, conn: Connection, after: int, limit: int, *, now: datetime) -> Sequence[Happening]:
        """Return all accounts of one day together, so that a cursor never stands within a day."""
        last = _last_whole_day(now).toordinal()
        if (ordinal := max(after + 1, last - MOST_DAYS)) > last:
            return []
        day = date.fromordinal(ordinal)
        happenings = list(_day(conn, day, now))
        total = sum(happening.data["total_msats"] for happening in happenings)
        closed = {"day": day.isoformat(), "accounts": len(happenings), "total_msats": total}
        return [
            *happenings,
            Happening(
                position=ordinal,
                id=f"day_{day.isoformat()}",
                kind="usage.day_closed",
                account=None,
                at=_began(day) + DAY,
                data=closed,
            ),
        ]

    def next_at(self, *, now: datetime) -> datetime | None:
        return _began(_last_whole_day(now)) + 2 * DAY + SETTLING


def _day(conn: Connection, day: date, now: datetime) -> Iterator[Happening]:
    began = _began(day)
    ended = began + DAY
    for owner in _users(conn, began, ended):
        used = usage(conn, owner, since=began, until=ended, now=now)
        if not (lines := [line for line in used if line.seconds_us or line.nsats]):
            continue
        total = sum(line.nsats for line in lines) // NSATS_PER_MSAT
        yield Happening(
            position=day.toordinal(),
            id=f"day_{day.isoformat()}_{owner}",
            kind="usage.daily",
            account=owner,
            at=ended,
            data={
                "account": owner,
                "day": day.isoformat(),
                "usage": [_line(line) for line in lines],
                "total_msats": total,
            },
        )


def _users(conn: Connection, began: datetime, ended: datetime) -> list[str]:
    over = select(_s.owner).where(_s.ended_at >= began, _s.began_at < ended)
    running = select(meters.c.owner).where(meters.c.closed_at.is_(None), meters.c.began_at < ended)
    return sorted(conn.execute(union(over, running)).scalars())


def _line(line: UsageLine) -> dict[str, Any]:
    return {
        "subject": line.subject,
        "use": line.use.value,
        "began_at": line.began_at.isoformat(),
        "ended_at": line.ended_at.isoformat(),
        "seconds": line.seconds_us / 1_000_000,
        "msats": line.msats,
    }


def _last_whole_day(now: datetime) -> date:
    return (now.astimezone(UTC) - SETTLING).date() - DAY


def _began(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _segment(row: Row[Any]) -> Segment:
    nsats = nsats_between(row.rate_msats, row.began_at, row.ended_at) + row.msats * NSATS_PER_MSAT
    return from_row(
        Segment,
        row,
        account=row.owner,
        use=row.kind,
        seconds_us=used_us(row.id, row.began_at, row.ended_at),
        msats=nsats // NSATS_PER_MSAT,
    )
