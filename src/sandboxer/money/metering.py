"""Meters are opened, re-rated and closed in the transaction of the change that they measure.

Nothing is written while a meter runs. Each change writes one row of what was used (`meter_segments`), changes
the bucket's flow, and charges the whole sats owed by then.

`at` is when the change happened, if that is not `now`: a sandbox found dead ends when it was last seen alive,
and what was charged for the time after is given back. It is never before the present rate began, nor after
the moment up to which its bucket is charged. `step` (the record's version) makes a late retry harmless: a
step not newer than the last one changes nothing.

A hold sets sats aside before a sandbox exists, so that concurrent creates cannot overspend.

    create ──hold_slice──> pending ──probe passed──> begin_charge: the hold is freed, a meter runs
                              └─────provision failed──> release: nothing was charged

While a sandbox runs, ten minutes of its rate are kept from other spending (`Bucket.reserved`). That reserve
needs no write, and it ends with the meter.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from sandboxer.kernel.errors import Conflict, InsufficientCredit, or_not_found
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import NSATS_PER_MSAT, Msats, Rate, Sats, checked_amount, checked_rate, sats_for
from sandboxer.money.buckets import charge, conclude, frozen, settle_account
from sandboxer.money.ledger import INCOME, find_transfer, insert_once, is_pending, post_transfer, void_pending
from sandboxer.money.policy import GracePolicy, Use
from sandboxer.money.records import Bucket, bucket_id
from sandboxer.money.segments import Meter, add_segment, count_use, give_back, meter_of
from sandboxer.money.tables import ledger_pendings, meter_segments, meters, money_policy
from sandboxer.money.transfers import Phase, Transfer
from sandboxer.store.workers import announce

_US = timedelta(microseconds=1)


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
    return None if row is None else meter_of(row)


def _load(conn: Connection, meter_id: str) -> Meter:
    return or_not_found(find_meter(conn, meter_id), what="meter", id=meter_id)


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


@value_class
class HoldPolicy:
    slice: timedelta = timedelta(minutes=10)
    # A bucket that cannot pay for so long is refused: a sandbox must live long enough to be paid for.
    least: timedelta = timedelta(seconds=1)


HOLDS = HoldPolicy()


@value_class
class Hold:
    id: str
    sats: Sats


def hold_slice(
    conn: Connection,
    owner: str,
    *,
    id: str,
    rate: Rate,
    reason: str,
    now: datetime,
    holds: HoldPolicy = HOLDS,
) -> Hold | None:
    """Set aside a slice of the rate, at most what is available; None if the rate is zero.

    The same id holds once. Raises InsufficientCredit if not even the least is available.
    """
    if not checked_rate(rate):
        return None
    bucket = settle_account(conn, owner, now=now)
    if (known := find_transfer(conn, id)) is not None:
        return Hold(id=id, sats=known.amount)
    least = sats_for(rate, holds.least)
    if (free := max(0, bucket.available - frozen(conn, owner))) < least:
        raise InsufficientCredit(required=least, available=free, account=owner)
    sats = min(sats_for(rate, holds.slice), free)
    hold_sats(conn, bucket, sats, id=id, to=INCOME, reason=reason, now=now)
    return Hold(id=id, sats=sats)


def hold_sats(
    conn: Connection,
    bucket: Bucket,
    sats: Sats,
    *,
    id: str,
    to: str,
    reason: str,
    now: datetime,
) -> Bucket:
    """Hold an exact sum of a settled bucket for `to`. Raises InsufficientCredit. The same id holds once."""
    free = max(0, bucket.available - frozen(conn, bucket.owner))
    if sats > free and find_transfer(conn, id) is None:
        raise InsufficientCredit(required=sats, available=free, account=bucket.owner)
    transfer = Transfer(
        id=id,
        debit=bucket_id(bucket.owner),
        credit=to,
        amount=sats,
        kind="hold",
        phase=Phase.PENDING,
        reason=reason,
        at=now,
    )
    if post_transfer(conn, transfer):
        bucket = replace(bucket, held=bucket.held + sats)
    return conclude(conn, bucket, now=now)


def release(conn: Connection, owner: str, hold_id: str, *, reason: str, now: datetime) -> Bucket:
    """Free a hold; nothing is charged for it. A hold that is free or was never made is left as it is."""
    charge(conn, owner, now=now)
    if is_pending(conn, hold_id):
        void_pending(conn, hold_id, reason=reason, now=now)
    return settle_account(conn, owner, now=now)


def begin_charge(
    conn: Connection,
    owner: str,
    *,
    hold_id: str | None,
    meter_id: str,
    subject: str,
    rate: Rate,
    now: datetime,
    use: Use = Use.RUNNING,
    ready_at: datetime | None = None,
    step: int = 0,
    key: str = "",
) -> Bucket:
    """The probe passed: the hold becomes a meter that charges from `ready_at`, in one transaction."""
    charge(conn, owner, now=now)
    if hold_id is not None and is_pending(conn, hold_id):
        void_pending(conn, hold_id, reason="became a meter", now=now)
    return open_meter(
        conn,
        owner,
        id=meter_id,
        subject=subject,
        use=use,
        rate=rate,
        now=now,
        at=ready_at,
        step=step,
        key=key,
    )


def open_holds(conn: Connection, owner: str) -> list[Hold]:
    """Return the open holds of a bucket, one for each sandbox that is being made."""
    query = select(ledger_pendings.c.id, ledger_pendings.c.amount).where(
        ledger_pendings.c.debit == bucket_id(owner)
    )
    return [Hold(id=id, sats=sats) for id, sats in conn.execute(query)]


def end_charges(conn: Connection, *, now: datetime, at: datetime | None = None) -> None:
    """Let every meter measure nothing from `at` on, and free all holds: the operator charges no more.

    `at` is when a server last saw what they measure: what died since is found only when nothing is charged
    any more, and nobody would give back what it paid until then.

    Meters stay open. When people pay here again, each is taken up by what it belongs to; the time between is
    nobody's debt.
    """
    measuring = select(meters.c.id).where(meters.c.closed_at.is_(None), meters.c.kind != Use.NOTHING.value)
    for id in conn.execute(measuring.order_by(meters.c.id)).scalars().all():
        change_rate(conn, id, use=Use.NOTHING, rate=0, now=now, at=at)
    waiting = select(ledger_pendings.c.id, ledger_pendings.c.debit).where(ledger_pendings.c.id.like("hold:%"))
    for id, debit in conn.execute(waiting).all():
        release(conn, debit.removeprefix(bucket_id("")), id, reason="nothing is charged any more", now=now)


def at_nothing(conn: Connection) -> dict[str, Use]:
    """Return the open meters that run at nothing, by id, and what for."""
    query = select(meters.c.id, meters.c.kind).where(meters.c.closed_at.is_(None), meters.c.rate_msats == 0)
    return {id: Use(kind) for id, kind in conn.execute(query)}


def set_policy(
    conn: Connection, *, grace: GracePolicy, reserve: timedelta, deposit: timedelta = timedelta(0)
) -> None:
    """Write the operator's settings for all buckets. Called once, at start."""
    values = {
        "grace_us": grace.window // _US,
        "grace_cap_us": grace.hard_cap // _US,
        "reserve_us": reserve // _US,
        "deposit_us": deposit // _US,
    }
    conn.execute(update(money_policy).values(**values))
