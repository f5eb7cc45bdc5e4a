"""Meters opened, re-rated and closed inside the transaction of the change they measure.

Nothing is written while a meter runs. Each change is one row of what was used (`meter_segments`), one change
of the bucket's flow, and the charge of whatever whole sats are owed by then.

`at` is when it happened, if that is not `now`: a sandbox found dead ends at its last sign of life, and what
was charged for the time after is given back. It is never before the present rate began nor after `now`.
`step` (the record's version) makes a late retry harmless: a step not newer than the last one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.money.amounts import NSATS_PER_MSAT, Msats, Rate, checked_amount, checked_rate
from sandboxer.money.buckets import Bucket, charge, conclude, settle_account
from sandboxer.money.ledger import insert_once
from sandboxer.money.meters import Use
from sandboxer.money.spending import count_use
from sandboxer.money.tables import meter_segments, meters
from sandboxer.store.workers import announce

__all__ = ["Meter", "change_rate", "charge_once", "close_meter", "find_meter", "open_meter", "settle_account"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    id: str
    owner: str
    subject: str
    use: Use
    rate: Rate
    began_at: datetime
    closed_at: datetime | None
    segments: int
    step: int
    # Whose key asked for it: what it costs counts there.
    key: str = ""


def open_meter(
    conn: Connection,
    owner: str,
    *,
    id: str,
    subject: str,
    use: Use,
    rate: Rate,
    now: datetime,
    at: datetime | None = None,
    step: int = 0,
    key: str = "",
) -> Bucket:
    """Charge `owner` from `at` on. Opening the same meter again changes nothing, even after it was closed."""
    checked_rate(rate)
    bucket = charge(conn, owner, now=now)
    began = min(at or now, max(now, bucket.flow.settled_at))
    values = {
        "id": id,
        "owner": owner,
        "subject": subject,
        "kind": use.value,
        "rate_msats": rate,
        "began_at": began,
        "segments": 0,
        "step": step,
        "key": key,
    }
    if insert_once(conn, meters, values):
        bucket = charge(conn, owner, now=now, by=rate, at=began)
    else:
        found = _load(conn, id)
        if (found.owner, found.subject) != (owner, subject):
            raise Conflict(why=f"the meter {id} belongs to another account or thing")
    return conclude(conn, bucket, now=now)


def change_rate(
    conn: Connection,
    meter_id: str,
    *,
    use: Use,
    rate: Rate,
    now: datetime,
    at: datetime | None = None,
    step: int | None = None,
) -> Bucket:
    """The meter goes on at another rate: frozen, thawed, stopped, resumed, reaped, no longer entitled."""
    checked_rate(rate)
    bucket = charge(conn, _load(conn, meter_id).owner, now=now)
    meter = _load(conn, meter_id)
    if meter.closed_at is not None and not _is_late(meter, step):
        raise Conflict(why=f"the meter {meter_id} is closed")
    if not _is_late(meter, step) and (meter.use, meter.rate) != (use, rate):
        ended = _ended(meter, bucket, at, now)
        _add_segment(conn, meter, ended)
        values = {"kind": use.value, "rate_msats": rate, "began_at": ended, "segments": meter.segments + 1}
        _update(conn, meter, values, step)
        bucket = charge(conn, meter.owner, now=now, by=rate - meter.rate, at=ended)
    return conclude(conn, bucket, now=now)


def close_meter(
    conn: Connection,
    meter_id: str,
    *,
    now: datetime,
    at: datetime | None = None,
) -> Bucket:
    """The end of the charge. Closing again changes nothing."""
    bucket = charge(conn, _load(conn, meter_id).owner, now=now)
    meter = _load(conn, meter_id)
    if meter.closed_at is None:
        ended = _ended(meter, bucket, at, now)
        _add_segment(conn, meter, ended)
        values = {"rate_msats": 0, "closed_at": ended, "segments": meter.segments + 1}
        _update(conn, meter, values, None)
        bucket = charge(conn, meter.owner, now=now, by=-meter.rate, at=ended)
    return conclude(conn, bucket, now=now)


def charge_once(
    conn: Connection,
    owner: str,
    *,
    id: str,
    subject: str,
    use: Use,
    msats: Msats,
    now: datetime,
    key: str | None = None,
) -> Bucket:
    """Something used that is not time, such as egress bytes. The same id is charged once.

    `key` None: it counts where the subject's own meter does.
    """
    checked_amount(msats, field="msats")
    bucket = charge(conn, owner, now=now)
    key = _key_of(conn, owner, subject) if key is None else key
    values = {
        "id": id,
        "owner": owner,
        "subject": subject,
        "kind": use.value,
        "rate_msats": 0,
        "began_at": now,
        "ended_at": now,
        "msats": msats,
        "key": key,
    }
    if insert_once(conn, meter_segments, values):
        count_use(conn, owner, key, rate=0, began=now, ended=now, msats=msats)
        # No event tells of it, and those who export usage want to hear; so do those who watch over caps.
        announce(conn, subject)
        announce(conn, owner)
        bucket = charge(conn, owner, now=now, extra=msats * NSATS_PER_MSAT)
    return conclude(conn, bucket, now=now)


def find_meter(conn: Connection, meter_id: str) -> Meter | None:
    row = conn.execute(select(meters).where(meters.c.id == meter_id)).one_or_none()
    return None if row is None else from_row(row)


def from_row(row: Row[Any]) -> Meter:
    return Meter(
        id=row.id,
        owner=row.owner,
        subject=row.subject,
        use=Use(row.kind),
        rate=row.rate_msats,
        began_at=row.began_at,
        closed_at=row.closed_at,
        segments=row.segments,
        step=row.step,
        key=row.key,
    )


def _load(conn: Connection, meter_id: str) -> Meter:
    meter = find_meter(conn, meter_id)
    if meter is None:
        raise NotFound(what="meter", id=meter_id)
    return meter


def _is_late(meter: Meter, step: int | None) -> bool:
    return step is not None and step <= meter.step


def _ended(meter: Meter, bucket: Bucket, at: datetime | None, now: datetime) -> datetime:
    """When the present rate ended: not before it began, not after the moment up to which we charge.

    What has no grace ends when it ran dry, however late anyone noticed and whatever ended first.
    """
    ended = min(at or now, max(now, bucket.flow.settled_at))
    if bucket.died_at is not None:
        ended = min(ended, bucket.died_at)
    return max(meter.began_at, ended)


def _add_segment(conn: Connection, meter: Meter, ended: datetime) -> None:
    conn.execute(
        insert(meter_segments).inline(),
        {
            "id": f"{meter.id}:{meter.segments}",
            "owner": meter.owner,
            "subject": meter.subject,
            "kind": meter.use.value,
            "rate_msats": meter.rate,
            "began_at": meter.began_at,
            "ended_at": ended,
            "msats": 0,
            "key": meter.key,
        },
    )
    count_use(conn, meter.owner, meter.key, rate=meter.rate, began=meter.began_at, ended=ended)


def _key_of(conn: Connection, owner: str, subject: str) -> str:
    found = select(meters.c.key).where(meters.c.subject == subject, meters.c.owner == owner).limit(1)
    return conn.execute(found).scalar() or ""


def _update(conn: Connection, meter: Meter, values: dict[str, Any], step: int | None) -> None:
    values["step"] = meter.step if step is None else step
    conn.execute(update(meters).where(meters.c.id == meter.id).values(**values))
