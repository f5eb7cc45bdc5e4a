"""A bucket holds an owner's sats. These functions move sats in and out of it.

Each function first locks the bucket's row, charges what its meters owe, and only then looks at the balance:
sats that are already owed cannot be spent twice. Afterwards it decides again when the bucket runs dry and
records the events for the owner (`account.low`, `.dry`, `.reaped`, `.funded`).

When one of these functions raises, the settlement is done and nothing else is: the caller may go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, or_, select, true, update

from sandboxer.kernel.errors import InsufficientCredit, NotFound
from sandboxer.money.amounts import Nsats, Rate, Sats, checked_amount, sats_for
from sandboxer.money.heartbeat import gaps_after
from sandboxer.money.ledger import (
    EXTERNAL,
    INCOME,
    LOSS,
    find_transfer,
    insert_once,
    open_account,
    open_platform_accounts,
    post_transfer,
)
from sandboxer.money.policy import (
    NO_GRACE,
    Flow,
    GracePolicy,
    Health,
    Standing,
    Use,
    change,
    collect,
    is_receipt_enough,
    judge,
)
from sandboxer.money.records import Bucket, bucket_id, debt_id, frozen_id, unconfirmed_id
from sandboxer.money.segments import pause_meters
from sandboxer.money.tables import ledger_accounts, meters, money_buckets, money_policy
from sandboxer.money.transfers import AccountKind, Transfer
from sandboxer.observe.events import record
from sandboxer.store.workers import announce

ACTOR = "system:money"
# Announced to `Store.on_commit` when the moment at which a bucket needs attention has changed.
DUE_TOPIC = "money.due"
_US = timedelta(microseconds=1)


def open_bucket(conn: Connection, owner: str, *, now: datetime, is_budget: bool = False) -> bool:
    """Open an empty bucket; return False if it is open already.

    `is_budget` marks the bucket of a delegated key: it has no grace, and the ledger restricts what leaves it.
    """
    values = {
        "owner": owner,
        "rate_msats": 0,
        "settled_at": now,
        "carried_nsats": 0,
        "settlements": 0,
        "standing": Standing.ALIVE.value,
        "has_grace": not is_budget,
        "collected_sats": 0,
    }
    if not insert_once(conn, money_buckets, values):
        return False
    open_platform_accounts(conn, now=now)
    kind = AccountKind.BUDGET if is_budget else AccountKind.BUCKET
    open_account(conn, id=bucket_id(owner), kind=kind, owner=owner, now=now)
    open_account(conn, id=debt_id(owner), kind=AccountKind.DEBT, owner=owner, now=now)
    return True


def settle_account(conn: Connection, owner: str, *, now: datetime) -> Bucket:
    """Charge what is owed and decide the bucket's condition. It writes nothing if nothing is due.

    Call it also after a pending transfer into or out of a bucket was resolved in the ledger directly.
    """
    return conclude(conn, charge(conn, owner, now=now), now=now)


def credit(
    conn: Connection,
    owner: str,
    amount: Sats,
    *,
    id: str,
    reason: str,
    now: datetime,
    debit: str = EXTERNAL,
    kind: str = "credit",
    data: Mapping[str, Any] | None = None,
) -> Bucket:
    """Put sats in; a debt is paid from them first. The same id credits once."""
    bucket = charge(conn, owner, now=now)
    if _post(conn, id, debit, bucket_id(owner), amount, kind, reason, now, data):
        bucket = replace(bucket, posted=bucket.posted + amount)
        # Announced even if the bucket was alive: a sandbox may sleep until there is enough to wake it.
        announce(conn, owner)
    return conclude(conn, bucket, now=now)


def spend(
    conn: Connection,
    owner: str,
    amount: Sats,
    *,
    id: str,
    to: str,
    kind: str,
    reason: str,
    now: datetime,
    data: Mapping[str, Any] | None = None,
) -> Bucket:
    """Move sats out to another account, leaving its meters their reserve. The same id spends once.

    Sats that are not yet confirmed or are in doubt cannot be given away, and neither can the deposit for what
    is kept on disks. Raises InsufficientCredit. If `to` is another bucket, call `settle_account` for its
    owner afterwards.
    """
    checked_amount(amount)
    bucket = settle_account(conn, owner, now=now)
    bound = unconfirmed(conn, owner) + frozen(conn, owner) + _deposit(conn, owner)
    free = max(0, bucket.available - bound)
    if amount > free and find_transfer(conn, id) is None:
        raise InsufficientCredit(required=amount, available=free, account=owner)
    if _post(conn, id, bucket_id(owner), to, amount, kind, reason, now, data):
        bucket = replace(bucket, posted=bucket.posted - amount)
    return conclude(conn, bucket, now=now)


def unconfirmed(conn: Connection, owner: str) -> Sats:
    """Return how much of what was credited is not final yet."""
    return _below_zero(conn, unconfirmed_id(owner))


def frozen(conn: Connection, owner: str) -> Sats:
    """Return how much of what was credited is in doubt: meters may use it, but it buys nothing new."""
    return _below_zero(conn, frozen_id(owner))


def _below_zero(conn: Connection, id: str) -> Sats:
    account = ledger_accounts.c
    query = select(account.debits_posted - account.credits_posted).where(account.id == id)
    return int(conn.execute(query).scalar() or 0)


def stored_rate(conn: Connection, owner: str) -> Rate:
    """Return what the stored disks of an account cost per second: those that belong to nothing running."""
    columns = meters.c
    query = select(func.sum(columns.rate_msats)).where(
        columns.owner == owner, columns.closed_at.is_(None), columns.kind == Use.STORED.value
    )
    return int(conn.execute(query).scalar() or 0)


def _deposit(conn: Connection, owner: str) -> Sats:
    """Return the sats that must stay for what an account keeps; otherwise the same sats would back many
    disks.
    """
    if not (rate := stored_rate(conn, owner)):
        return 0
    deposit_us = conn.execute(select(money_policy.c.deposit_us)).scalar() or 0
    return sats_for(rate, deposit_us * _US)


def receipt(conn: Connection, owner: str, sats: Sats, *, now: datetime) -> bool:
    """Restart the grace window because a payment was seen that is not final yet.

    Returns False, and changes nothing, if the bucket is not in grace or the payment is too small.
    """
    bucket = settle_account(conn, owner, now=now)
    if bucket.health.standing is not Standing.GRACE or not is_receipt_enough(sats, bucket.flow, bucket.grace):
        return False
    health = replace(bucket.health, last_receipt_at=now)
    conclude(conn, replace(bucket, health=health), now=now)
    return True


def look_again_at(conn: Connection, owner: str, moment: datetime | None, *, now: datetime) -> Bucket:
    """Have the bucket timer announce the owner to `Store.on_commit` at this moment; None cancels that."""
    bucket = charge(conn, owner, now=now)
    return conclude(conn, replace(bucket, look_at=moment), now=now, before=bucket)


def look_at_once(conn: Connection, owner: str, *, now: datetime) -> None:
    """Set the moment of `look_again_at` to now, unless it is earlier: the next reader looks at all since
    then.
    """
    later = or_(money_buckets.c.look_at.is_(None), money_buckets.c.look_at > now)
    conn.execute(update(money_buckets).where(money_buckets.c.owner == owner, later).values(look_at=now))


def write_off(conn: Connection, owner: str, *, reason: str, now: datetime) -> Sats:
    """Turn a debt that cannot be collected into a loss. Returns how many sats; zero if nothing was owed."""
    bucket = settle_account(conn, owner, now=now)
    if bucket.debt:
        id = f"writeoff:{owner}:{bucket.settlements}"
        _post(conn, id, LOSS, debt_id(owner), bucket.debt, "write_off", reason, now)
        conclude(conn, replace(bucket, debt=0, settlements=bucket.settlements + 1), now=now)
    return bucket.debt


def load_bucket(conn: Connection, owner: str, *, lock: bool = False) -> Bucket:
    """Load the bucket as last written, without settling it.

    With `lock`, nobody else changes it before the transaction ends.
    """
    statement = _LOAD_LOCKED if lock else _LOAD
    names = {"owner": owner, "bucket_id": bucket_id(owner), "debt_id": debt_id(owner)}
    if (row := conn.execute(statement, names).one_or_none()) is None:
        raise NotFound(what="balance of account", id=owner)
    bucket = _from_row(row)
    if row.gaps_until is None or row.gaps_until <= row.settled_at:
        return bucket
    return replace(bucket, gaps=gaps_after(conn, row.settled_at))


def charge(
    conn: Connection,
    owner: str,
    *,
    now: datetime,
    by: Rate = 0,
    at: datetime | None = None,
    extra: Nsats = 0,
    is_exact: bool = False,
) -> Bucket:
    """Lock the bucket and charge the whole sats it owes; its condition is judged later, by `conclude`.

    The rate of its flow changes by `by` as of `at`, and `extra` is owed in addition. If nothing changes and
    no whole sat is owed, nothing is written and the flow stays as it was last settled. With `is_exact` it is
    settled up to this very moment in any case, or to the end of its charges.
    """
    before = load_bucket(conn, owner, lock=True)
    seen = before.run_to(now)
    before = replace(before, is_stopped=seen.is_stopped)
    flow = seen.flow
    if at is not None:
        flow = change(flow, by=by, at=min(at, flow.settled_at))
    sats, flow = collect(replace(flow, carried=flow.carried + extra))
    is_news = bool(sats or extra or seen.skipped) or seen.health != before.health
    if not is_news and at is None and not is_exact:
        return before
    pause_meters(conn, owner, seen.skipped, with_free=True)
    return _save(conn, before, replace(_move(conn, before, sats, now), flow=flow, health=seen.health))


def conclude(conn: Connection, bucket: Bucket, *, now: datetime, before: Bucket | None = None) -> Bucket:
    """Pay a debt from what is there, judge the bucket's condition and record the events.

    `before` is the bucket as it is stored, if `bucket` differs from it already.
    """
    after = bucket
    if bucket.debt and bucket.spendable > 0:
        amount = min(bucket.debt, bucket.spendable)
        id = f"repay:{bucket.owner}:{bucket.settlements}"
        sides = (bucket_id(bucket.owner), debt_id(bucket.owner))
        _post(conn, id, *sides, amount, "repay", "debt is paid first", now)
        after = replace(
            bucket,
            posted=bucket.posted - amount,
            debt=bucket.debt - amount,
            settlements=bucket.settlements + 1,
            collected=bucket.collected + amount,
        )
    after = replace(after, is_stopped=False)
    # A bucket that comes back to life pays from now on, not for the time in between.
    waking = replace(after.flow, settled_at=max(now, after.flow.settled_at))
    flow = waking if bucket.is_stopped else after.flow
    verdict = judge(
        after.health, spendable=after.spendable, flow=flow, now=now, policy=after.grace, debt=after.debt
    )
    if bucket.is_stopped and verdict.health.standing is not Standing.REAPED:
        pause_meters(conn, after.owner, [(after.flow.settled_at, flow.settled_at)])
        after = replace(after, flow=flow)
    due_at = _first(verdict.due_at, after.look_at, now)
    after = _save(conn, before or bucket, replace(after, health=verdict.health, due_at=due_at))
    if after.look_at is not None and after.look_at <= now:
        announce(conn, after.owner)
    for tiding in verdict.tidings:
        record(
            conn,
            subject=after.owner,
            kind=tiding.kind,
            actor=ACTOR,
            reason=tiding.reason,
            at=now,
            data=tiding.data,
        )
    return after


def _first(due_at: datetime | None, look_at: datetime | None, now: datetime) -> datetime | None:
    """Return the earlier of the two.

    A `look_at` that has passed is announced at every change; it needs no timer.
    """
    if look_at is None or look_at <= now:
        return due_at
    return look_at if due_at is None else min(due_at, look_at)


def _move(conn: Connection, bucket: Bucket, sats: Sats, now: datetime) -> Bucket:
    """Charge `sats`, or give them back if below zero. A debt is the last to grow and the first to shrink."""
    if not sats:
        return bucket
    mine, debt = bucket_id(bucket.owner), debt_id(bucket.owner)
    word = "charge" if sats > 0 else "refund"
    id = f"{word}:{bucket.owner}:{bucket.settlements}"
    from_bucket = min(sats, max(0, bucket.spendable)) if sats > 0 else min(0, sats + bucket.debt)
    from_debt = sats - from_bucket
    for name, account, amount in ((id, mine, from_bucket), (f"{id}:debt", debt, from_debt)):
        if amount > 0:
            _post(conn, name, account, INCOME, amount, word, "usage", now)
        elif amount < 0:
            _post(conn, name, INCOME, account, -amount, word, "charged for time it did not run", now)
    return replace(
        bucket,
        posted=bucket.posted - from_bucket,
        debt=bucket.debt + from_debt,
        settlements=bucket.settlements + 1,
        collected=bucket.collected + from_bucket,
    )


def _post(
    conn: Connection,
    id: str,
    debit: str,
    credit: str,
    amount: Sats,
    kind: str,
    reason: str,
    now: datetime,
    data: Mapping[str, Any] | None = None,
) -> bool:
    facts = data or {}
    transfer = Transfer(
        id=id, debit=debit, credit=credit, amount=amount, kind=kind, reason=reason, at=now, data=facts
    )
    return post_transfer(conn, transfer)


_bucket, _debt = ledger_accounts.alias("bucket"), ledger_accounts.alias("debt")
_LOAD = (
    select(
        money_buckets,
        money_policy,
        (_bucket.c.credits_posted - _bucket.c.debits_posted).label("posted"),
        _bucket.c.debits_pending.label("held"),
        (_debt.c.debits_posted - _debt.c.credits_posted).label("owes"),
    )
    .join_from(money_buckets, _bucket, _bucket.c.id == bindparam("bucket_id"))
    .join(_debt, _debt.c.id == bindparam("debt_id"))
    .join(money_policy, true())
    .where(money_buckets.c.owner == bindparam("owner"))
)
# These three rows are locked, because PostgreSQL shows the newest version only of rows that it locks. The row
# of the policy is not: all accounts would wait for each other.
_LOAD_LOCKED = _LOAD.with_for_update(of=(money_buckets, _bucket, _debt))
_SAVE = update(money_buckets).where(money_buckets.c.owner == bindparam("of"))


def _from_row(row: Row[Any]) -> Bucket:
    return Bucket(
        owner=row.owner,
        posted=row.posted,
        held=row.held,
        debt=row.owes,
        flow=Flow(rate=row.rate_msats, settled_at=row.settled_at, carried=row.carried_nsats),
        settlements=row.settlements,
        health=Health(
            standing=Standing(row.standing),
            grace_began_at=row.grace_began_at,
            last_receipt_at=row.last_receipt_at,
            warned_s=row.warned_s,
        ),
        due_at=row.due_at,
        policy=_grace(row),
        collected=row.collected_sats,
        reserve=row.reserve_us * _US,
        look_at=row.look_at,
    )


def _grace(row: Row[Any]) -> GracePolicy:
    if not row.has_grace:
        return NO_GRACE
    return GracePolicy(window=row.grace_us * _US, hard_cap=row.grace_cap_us * _US)


def _to_row(bucket: Bucket) -> dict[str, object]:
    return {
        "rate_msats": bucket.flow.rate,
        "settled_at": bucket.flow.settled_at,
        "carried_nsats": bucket.flow.carried,
        "settlements": bucket.settlements,
        "standing": bucket.health.standing.value,
        "grace_began_at": bucket.health.grace_began_at,
        "last_receipt_at": bucket.health.last_receipt_at,
        "warned_s": bucket.health.warned_s,
        "due_at": bucket.due_at,
        "look_at": bucket.look_at,
        "collected_sats": bucket.collected,
    }


def _save(conn: Connection, before: Bucket, after: Bucket) -> Bucket:
    if (row := _to_row(after)) != _to_row(before):
        conn.execute(_SAVE, {**row, "of": after.owner})
    if after.due_at is not None and after.due_at != before.due_at:
        announce(conn, DUE_TOPIC)
    return after
