"""Meters are opened, re-rated and closed in the transaction of the change that they measure.

Nothing is written while a meter runs. Each change writes one row of what was used (`meter_segments`), changes
the bucket's flow, and charges the whole sats owed by then.

`at` is when the change happened, if that is not `now`: a sandbox found dead ends when it was last seen alive,
and what was charged for the time after is given back. It is never before the present rate began, nor after
the moment up to which its bucket is charged. `step` (the record's version) makes a late retry harmless: a
step not newer than the last one changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.money.amounts import NSATS_PER_MSAT, Msats, Rate, checked_amount, checked_rate
from sandboxer.money.buckets import charge, conclude, settle_account
from sandboxer.money.ledger import insert_once
from sandboxer.money.policy import Use
from sandboxer.money.records import Bucket
from sandboxer.money.segments import Meter, add_segment, count_use, from_row, give_back
from sandboxer.money.tables import meter_segments, meters
from sandboxer.store.workers import announce

__all__ = ["Meter", "change_rate", "charge_once", "close_meter", "find_meter", "open_meter", "settle_account"]


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
    """Let the meter go on at another rate, because its sandbox was frozen, stopped, resumed and so on."""
    checked_rate(rate)
    moment = now if at is None else min(at, now)
    bucket = charge(conn, _load(conn, meter_id).owner, now=moment, is_exact=True)
    meter = _load(conn, meter_id)
    if meter.closed_at is not None and not _is_late(meter, step):
        raise Conflict(why=f"the meter {meter_id} is closed")
    if not _is_late(meter, step) and (meter.use, meter.rate) != (use, rate):
        began = _end(conn, meter, bucket, moment, to=rate)
        values = {"kind": use.value, "rate_msats": rate, "began_at": began, "rated_at": None}
        _update(conn, meter, values, step)
    return settle_account(conn, meter.owner, now=_seen_until(bucket, at, now))


def close_meter(
    conn: Connection,
    meter_id: str,
    *,
    now: datetime,
    at: datetime | None = None,
) -> Bucket:
    """Close the meter, which ends its charge. Closing again changes nothing."""
    moment = now if at is None else min(at, now)
    bucket = charge(conn, _load(conn, meter_id).owner, now=moment, is_exact=True)
    meter = _load(conn, meter_id)
    if meter.closed_at is None:
        ended = _end(conn, meter, bucket, moment, to=0)
        _update(conn, meter, {"rate_msats": 0, "closed_at": ended}, None)
    return settle_account(conn, meter.owner, now=_seen_until(bucket, at, now))


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
    """Charge for something other than time, such as egress bytes. The same id is charged once.

    Without a `key` it counts for the key of the subject's own meter.
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
        # There is no event for it, and the usage feed and the loop that watches caps want to know.
        announce(conn, subject)
        announce(conn, owner)
        bucket = charge(conn, owner, now=now, extra=msats * NSATS_PER_MSAT)
    return conclude(conn, bucket, now=now)


def find_meter(conn: Connection, meter_id: str) -> Meter | None:
    row = conn.execute(select(meters).where(meters.c.id == meter_id)).one_or_none()
    return None if row is None else from_row(row)


def _load(conn: Connection, meter_id: str) -> Meter:
    meter = find_meter(conn, meter_id)
    if meter is None:
        raise NotFound(what="meter", id=meter_id)
    return meter


def _seen_until(bucket: Bucket, at: datetime | None, now: datetime) -> datetime:
    """The moment up to which a bucket is judged when something is noticed that happened `at`.

    It is not judged any further: another of its meters may have ended since, and nobody has noticed it yet.
    The bucket timer brings it to `now`.
    """
    return now if at is None else min(now, max(at, bucket.flow.settled_at))


def _is_late(meter: Meter, step: int | None) -> bool:
    return step is not None and step <= meter.step


def _end(conn: Connection, meter: Meter, bucket: Bucket, moment: datetime, *, to: Rate) -> datetime:
    """End the present rate at `moment`, up to which the bucket was just settled; from then on it is `to`.

    Returns when it really ended: not before the rate began, and not after the bucket's charges ended.
    """
    ended = max(meter.rated_at, min(moment, bucket.flow.settled_at))
    began = max(ended, meter.began_at)
    back = 0
    if ended < meter.began_at:
        back = give_back(conn, meter, ended)
    add_segment(conn, meter, began)
    charge(conn, meter.owner, now=moment, by=to - meter.rate, at=began, extra=back)
    return began


def _key_of(conn: Connection, owner: str, subject: str) -> str:
    found = select(meters.c.key).where(meters.c.subject == subject, meters.c.owner == owner).limit(1)
    return conn.execute(found).scalar() or ""


def _update(conn: Connection, meter: Meter, values: dict[str, Any], step: int | None) -> None:
    values["step"] = meter.step if step is None else step
    values["segments"] = meter.segments + 1
    conn.execute(update(meters).where(meters.c.id == meter.id).values(**values))
