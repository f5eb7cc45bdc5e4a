"""A meter as it is stored, the segments it leaves, and its pauses: times that nobody pays for.

What is charged is rate × time of segments and open meters, to the nanosat. A pause therefore ends a segment
and lets the meter go on after it. Should it turn out later that the meter had ended before a pause, what its
segments charged too much goes back by segments of a rate below zero: nothing that was written is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from sandboxer.money.accrual import Span
from sandboxer.money.amounts import Nsats, Rate
from sandboxer.money.meters import Use, nsats_between
from sandboxer.money.spending import count_use
from sandboxer.money.tables import meter_segments, meters


@dataclass(frozen=True, slots=True, kw_only=True)
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
    # Whose key asked for it: what it costs counts there.
    key: str = ""


def from_row(row: Row[Any]) -> Meter:
    return Meter(
        id=row.id,
        owner=row.owner,
        subject=row.subject,
        use=Use(row.kind),
        rate=row.rate_msats,
        began_at=row.began_at,
        rated_at=row.rated_at or row.began_at,
        closed_at=row.closed_at,
        segments=row.segments,
        step=row.step,
        key=row.key,
    )


def pause_meters(conn: Connection, owner: str, spans: Iterable[Span], *, with_free: bool = False) -> None:
    """Every open meter of the owner's that costs something pauses during these times.

    `with_free`: those that cost nothing too, whose rate may be found to have changed before such a time.
    """
    running = select(meters).where(meters.c.owner == owner, meters.c.closed_at.is_(None))
    if not with_free:
        running = running.where(meters.c.rate_msats > 0)
    for began, ended in spans:
        for row in conn.execute(running.order_by(meters.c.id)).all():
            if row.began_at < ended:
                _pause(conn, from_row(row), began, ended)


def add_segment(conn: Connection, meter: Meter, ended: datetime) -> None:
    """What a meter used since its present rate began, or since its last pause."""
    _write(conn, meter, f"{meter.id}:{meter.segments}", meter.rate, meter.began_at, ended)


def give_back(conn: Connection, meter: Meter, ended: datetime) -> Nsats:
    """Its rate had ended before pauses that it was charged around. Returns what goes back, below zero."""
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
        _write(conn, meter, f"{row.id}:back", -meter.rate, began, row.ended_at)
        nsats -= nsats_between(meter.rate, began, row.ended_at)
    return nsats


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
