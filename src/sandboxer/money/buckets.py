"""An owner's bucket: sats in, sats out, and everything that must happen before either.

Each function first locks the bucket's row, charges what its meters owe, and only then looks at the balance:
accrued sats cannot be spent twice. Afterwards it decides anew when the bucket runs dry and records what the
owner should hear (`account.low`, `.dry`, `.reaped`, `.funded`).

An error out of these functions leaves the settlement done and nothing else: the caller may go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, or_, select, true, update

from sandboxer.kernel.errors import InsufficientCredit, NotFound
from sandboxer.money.accrual import Gap, Position, run_to
from sandboxer.money.amounts import Nsats, Rate, Sats, checked_amount, sats_for
from sandboxer.money.dryness import NO_GRACE, GracePolicy, Health, Standing, earned, is_receipt_enough, judge
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
from sandboxer.money.meter_rows import pause_meters
from sandboxer.money.meters import Flow, Use, change, collect, dry_at
from sandboxer.money.tables import ledger_accounts, meters, money_buckets, money_policy
from sandboxer.money.transfers import AccountKind, Transfer
from sandboxer.observe.events import record
from sandboxer.store.workers import announce

ACTOR = "system:money"
# Announced to `Store.on_commit` when the moment at which a bucket needs attention has changed.
DUE_TOPIC = "money.due"
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    owner: str
    # What is in it, and how much of that pending transfers hold.
    posted: Sats
    held: Sats
    # What grace cost and nobody has paid yet.
    debt: Sats
    flow: Flow
    settlements: int
    health: Health
    due_at: datetime | None
    # How long it may run on when it is dry: as the operator says, or not at all for a budget someone gave.
    policy: GracePolicy
    # What its meters have been paid in all, and has not gone back: grace is earned by it.
    collected: Sats
    # So much of what runs is kept back from other spending: a hold that renews itself, ends with the meter.
    reserve: timedelta
    # When a package above wants to look at it (see `look_again_at`).
    look_at: datetime | None
    # Those that are not settled yet, the first first.
    gaps: tuple[Gap, ...] = ()
    # Its charges ended before the moment up to which it was settled here.
    is_stopped: bool = False

    def run_to(self, now: datetime) -> Position:
        """Its meters as they stand at `now`. Nothing is written."""
        return run_to(
            now,
            flow=self.flow,
            health=self.health,
            spendable=self.spendable,
            collected=self.collected,
            policy=self.policy,
            gaps=self.gaps,
        )

    @property
    def grace(self) -> GracePolicy:
        """As much of the policy as it has earned."""
        return earned(self.policy, collected=self.collected, rate=self.flow.rate)

    @property
    def died_at(self) -> datetime | None:
        """When the charges of one that is reaped ended: nothing is charged after that."""
        return self.health.grace_began_at if self.health.standing is Standing.REAPED else None

    @property
    def spendable(self) -> Sats:
        """What its meters may use up."""
        return self.posted - self.held

    @property
    def reserved(self) -> Sats:
        """What its meters keep for themselves: a slice of all that runs, at most what is there."""
        return min(self.spendable, sats_for(self.flow.rate, self.reserve))

    @property
    def available(self) -> Sats:
        """What a new hold, create or transfer may take."""
        return 0 if self.debt else self.spendable - self.reserved

    @property
    def dry_at(self) -> datetime | None:
        """When it runs out if nothing happens; None: nothing flows."""
        return dry_at(self.spendable, self.flow)


def bucket_id(owner: str) -> str:
    return f"bucket:{owner}"


def debt_id(owner: str) -> str:
    return f"debt:{owner}"


def unconfirmed_id(owner: str) -> str:
    """The other side of payments that were credited before they are final: below zero by so much."""
    return f"unconfirmed:{owner}"


def frozen_id(owner: str) -> str:
    """The other side of payments that were final and are in doubt now: below zero by so much."""
    return f"frozen:{owner}"


def open_bucket(conn: Connection, owner: str, *, now: datetime, is_budget: bool = False) -> bool:
    """False if it is open already. `is_budget`: of a delegated key; no grace, and bound in the ledger."""
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
    """Charge what is owed, decide the bucket's condition. Writes nothing if nothing is due.

    Also what to call after a pending transfer into or out of a bucket was resolved in the ledger directly.
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
    transfer = Transfer(
        id=id,
        debit=debit,
        credit=bucket_id(owner),
        amount=amount,
        kind=kind,
        reason=reason,
        at=now,
        data=data or {},
    )
    if post_transfer(conn, transfer):
        bucket = replace(bucket, posted=bucket.posted + amount)
        # Also if it was alive: something may sleep until there is enough.
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

    What is not yet confirmed, or in doubt, stays: it cannot be given away; and so does the deposit for what
    is kept. Raises InsufficientCredit.
    If `to` is another bucket, call `settle_account` for its owner afterwards.
    """
    checked_amount(amount)
    bucket = settle_account(conn, owner, now=now)
    bound = unconfirmed(conn, owner) + frozen(conn, owner) + _deposit(conn, owner)
    free = max(0, bucket.available - bound)
    if amount > free and find_transfer(conn, id) is None:
        raise InsufficientCredit(required=amount, available=free, account=owner)
    transfer = Transfer(
        id=id,
        debit=bucket_id(owner),
        credit=to,
        amount=amount,
        kind=kind,
        reason=reason,
        at=now,
        data=data or {},
    )
    if post_transfer(conn, transfer):
        bucket = replace(bucket, posted=bucket.posted - amount)
    return conclude(conn, bucket, now=now)


def unconfirmed(conn: Connection, owner: str) -> Sats:
    """How much of what was credited is not final yet."""
    return _below_zero(conn, unconfirmed_id(owner))


def frozen(conn: Connection, owner: str) -> Sats:
    """How much of what was credited is in doubt: what runs may use it, nothing new is bought with it."""
    return _below_zero(conn, frozen_id(owner))


def _below_zero(conn: Connection, id: str) -> Sats:
    account = ledger_accounts.c
    query = select(account.debits_posted - account.credits_posted).where(account.id == id)
    return int(conn.execute(query).scalar() or 0)


def stored_rate(conn: Connection, owner: str) -> Rate:
    """What all that is kept for an account costs a second, while nothing of it runs."""
    columns = meters.c
    query = select(func.sum(columns.rate_msats)).where(
        columns.owner == owner, columns.closed_at.is_(None), columns.kind == Use.STORED.value
    )
    return int(conn.execute(query).scalar() or 0)


def _deposit(conn: Connection, owner: str) -> Sats:
    """What must stay for the things that an account keeps: else the same sats would answer for many."""
    rate = stored_rate(conn, owner)
    if not rate:
        return 0
    deposit_us = conn.execute(select(money_policy.c.deposit_us)).scalar() or 0
    return sats_for(rate, deposit_us * _US)


def receipt(conn: Connection, owner: str, sats: Sats, *, now: datetime) -> bool:
    """A payment was seen but is not final: if it would cover a while, grace starts anew within its cap."""
    bucket = settle_account(conn, owner, now=now)
    if bucket.health.standing is not Standing.GRACE or not is_receipt_enough(sats, bucket.flow, bucket.grace):
        return False
    health = replace(bucket.health, last_receipt_at=now)
    conclude(conn, replace(bucket, health=health), now=now)
    return True


def look_again_at(conn: Connection, owner: str, moment: datetime | None, *, now: datetime) -> Bucket:
    """Announce the owner to `Store.on_commit` when this moment has come; None: no need. The timer's work."""
    bucket = charge(conn, owner, now=now)
    return conclude(conn, replace(bucket, look_at=moment), now=now, before=bucket)


def look_at_once(conn: Connection, owner: str, *, now: datetime) -> None:
    """The next moment to look is this one: whoever is there next looks at all that was since."""
    later = or_(money_buckets.c.look_at.is_(None), money_buckets.c.look_at > now)
    conn.execute(update(money_buckets).where(money_buckets.c.owner == owner, later).values(look_at=now))


def write_off(conn: Connection, owner: str, *, reason: str, now: datetime) -> Sats:
    """What cannot be collected becomes a loss. Returns how much; zero if nothing was owed."""
    bucket = settle_account(conn, owner, now=now)
    if bucket.debt:
        id = f"writeoff:{owner}:{bucket.settlements}"
        _post(conn, id, LOSS, debt_id(owner), bucket.debt, "write_off", reason, now)
        conclude(conn, replace(bucket, debt=0, settlements=bucket.settlements + 1), now=now)
    return bucket.debt


def load_bucket(conn: Connection, owner: str, *, lock: bool = False) -> Bucket:
    """As last written; nothing is settled. `lock`: nobody else changes it before the transaction ends."""
    statement = _LOAD_LOCKED if lock else _LOAD
    row = conn.execute(
        statement, {"owner": owner, "bucket_id": bucket_id(owner), "debt_id": debt_id(owner)}
    ).one_or_none()
    if row is None:
        raise NotFound(what="bucket of account", id=owner)
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
    """Lock, settle, change the flow `by` so much as of `at`, add `extra`, charge whole sats; no verdict yet.

    Without a change, and with no whole sat owed, nothing is written, and the flow is as it was last settled;
    `is_exact`: it is settled up to this very moment, or to the end of its charges. `at` says that something
    ended then.
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
    """Pay a debt from what is there, judge the bucket's condition, tell of it.

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
    # Whoever comes back to life pays from now on, not for the time in between.
    waking = replace(after.flow, settled_at=max(now, after.flow.settled_at))
    flow = waking if bucket.is_stopped else after.flow
    verdict = judge(after.health, spendable=after.spendable, flow=flow, now=now, policy=after.grace)
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
    """A moment to look that has passed is announced at every touch, and needs no timer."""
    if look_at is None or look_at <= now:
        return due_at
    return look_at if due_at is None else min(due_at, look_at)


def _move(conn: Connection, bucket: Bucket, sats: Sats, now: datetime) -> Bucket:
    """Charge so many sats, or give them back if below zero. Debt is charged last and paid first."""
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
    conn: Connection, id: str, debit: str, credit: str, amount: Sats, kind: str, reason: str, now: datetime
) -> None:
    post_transfer(
        conn,
        Transfer(id=id, debit=debit, credit=credit, amount=amount, kind=kind, reason=reason, at=now),
    )


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
# All three rows: PostgreSQL shows the newest version only of what it had to wait for. Not the policy's, which
# would make all accounts wait for each other.
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
    row = _to_row(after)
    if row != _to_row(before):
        conn.execute(_SAVE, {**row, "of": after.owner})
    if after.due_at is not None and after.due_at != before.due_at:
        announce(conn, DUE_TOPIC)
    return after
