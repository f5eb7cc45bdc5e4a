"""A hold sets sats aside before a sandbox exists, so that concurrent creates cannot overspend.

    create ──hold_slice──> pending ──probe passed──> begin_charge: the hold is freed, a meter runs
                              └─────provision failed──> release: nothing was charged

While a sandbox runs, ten minutes of its rate are kept from other spending (`Bucket.reserved`). That reserve
needs no write, and it ends with the meter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, select, update

from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.amounts import Rate, Sats, checked_rate, sats_for
from sandboxer.money.buckets import charge, conclude, frozen, settle_account
from sandboxer.money.ledger import INCOME, find_transfer, is_pending, post_transfer, void_pending
from sandboxer.money.metering import open_meter
from sandboxer.money.policy import GracePolicy, Use
from sandboxer.money.records import Bucket, bucket_id
from sandboxer.money.tables import ledger_pendings, money_policy
from sandboxer.money.transfers import Phase, Transfer

_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPolicy:
    slice: timedelta = timedelta(minutes=10)
    # A bucket that cannot pay for so long is refused: a sandbox must live long enough to be paid for.
    least: timedelta = timedelta(seconds=1)


HOLDS = HoldPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
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
    free = max(0, bucket.available - frozen(conn, owner))
    if free < least:
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
        use=Use.RUNNING,
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
