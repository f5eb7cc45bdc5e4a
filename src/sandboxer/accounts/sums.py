"""Sums over the ledger: what was given to a delegated key, what came from outside, what was spent.

They are derived from transfers and usage. What caps count is kept per day (`money/segments.py`), because caps
are checked at every create and a history may be long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from sqlalchemy import Connection, func, select

from sandboxer.accounts.caps import NO_CAPS, Caps, Spent
from sandboxer.accounts.records import accounts
from sandboxer.kernel.values import value_class
from sandboxer.money import segments
from sandboxer.money.amounts import NSATS_PER_MSAT, NSATS_PER_SAT, Nsats, Rate, Sats
from sandboxer.money.buckets import load_bucket
from sandboxer.money.policy import nsats_between
from sandboxer.money.records import Position, bucket_id, counted_nsats, debt_id
from sandboxer.money.tables import ledger_accounts, ledger_transfers, meter_segments, meters, money_buckets
from sandboxer.money.transfers import Phase

# Kinds of transfers between parent and child; everything else that comes in was paid by an outsider.
GIVEN = "delegate"
RETURNED = "delegate_return"
# Given away for good to another account; caps count it as spent.
GIFT = "gift"
# A charge that was taken back; it comes into a bucket and is nobody's payment.
_REFUND = "refund"
# A payment that did not come, or that its chain took back.
REVERSED = "reversal"
_MOVED = (Phase.SINGLE.value, Phase.POST.value)
# Ids in one statement: SQLite takes 32,766 parameters.
_CHUNK = 1000
_columns = ledger_transfers.c


@value_class
class Totals:
    """The sums of one account of a tree, in sats."""

    # What its parent gave in all, and what went back to it.
    given: Sats = 0
    returned: Sats = 0
    # Paid in by anyone else, less what was taken back.
    outside: Sats = 0
    # To its own children, less what came back.
    passed_on: Sats = 0
    # Charged for what it used itself, up to this moment.
    spent: Sats = 0
    balance: Sats = 0


def paid_by_outsiders(conn: Connection, owner: str) -> Sats:
    """Return what came into a bucket from neither its parent nor its children, less what was taken back.

    A reversal counts in full, also the part that became a debt: the payment it undoes was counted in full.
    """
    amount = select(func.coalesce(func.sum(_columns.amount), 0)).where(_columns.phase.in_(_MOVED))
    paid = amount.where(_columns.credit == bucket_id(owner), _columns.kind.not_in((GIVEN, RETURNED, _REFUND)))
    reversed_ = amount.where(
        _columns.debit.in_((bucket_id(owner), debt_id(owner))), _columns.kind == REVERSED
    )
    net = int(conn.execute(paid).scalar_one()) - int(conn.execute(reversed_).scalar_one())
    return max(0, net)


def returnable(*, balance: Sats, outside: Sats) -> Sats:
    """Return what flows back to the parent at the end.

    A child uses up its budget first, then what outsiders paid. So whatever exceeds the outsiders' money is
    the parent's.
    """
    return max(0, balance - outside)


def rate_by(conn: Connection, owner: str, *, key: str) -> Rate:
    """Return what everything that a key runs costs per second; for a delegated account, all that runs."""
    if (name := _counted_key(conn, owner, key)) is not None:
        return segments.rate_of(conn, owner, name)
    query = select(func.sum(meters.c.rate_msats)).where(meters.c.owner == owner, meters.c.closed_at.is_(None))
    return int(conn.execute(query).scalar() or 0)


def _counted_key(conn: Connection, owner: str, key: str) -> str | None:
    """Return the key whose spending a cap per key counts; None: all keys of the account together.

    A delegated account counts as one key: a wallet linked to it, or a key that replaced its first, has no cap
    of its own.
    """
    kind = conn.execute(select(accounts.c.kind).where(accounts.c.id == owner)).scalar()
    return None if kind == "delegated" else key


def spent_by(
    conn: Connection, owner: str, caps: Caps, *, key: str, now: datetime, sandbox: str | None = None
) -> Spent:
    """Return what an account's caps count for one of its keys. Only what a cap needs is read."""
    if caps == NO_CAPS:
        return Spent()
    day, at = segments.day_of(now), load_bucket(conn, owner).run_to(now)
    of_sandbox = caps.per_sandbox_sats is not None and sandbox is not None
    return Spent(
        key=0 if caps.per_key_sats is None else _spent_by_key(conn, owner, at, key, now),
        sandbox=_used(conn, owner, at, now, sandbox) if of_sandbox else 0,
        today=0 if caps.per_day_sats is None else segments.spent(conn, owner, at, day=day, now=now),
    )


def _spent_by_key(conn: Connection, owner: str, at: Position, key: str, now: datetime) -> Nsats:
    return segments.spent(conn, owner, at, key=_counted_key(conn, owner, key), now=now)


def totals(conn: Connection, owners: Sequence[str], *, now: datetime) -> dict[str, Totals]:
    """The totals of many accounts at once, a few statements for every thousand."""
    found: dict[str, Totals] = {}
    for chunk in _chunks(owners):
        buckets = {bucket_id(owner): owner for owner in chunk}
        debts = {debt_id(owner): owner for owner in chunk}
        out = _sums(conn, _columns.debit, {**buckets, **debts})
        into = _sums(conn, _columns.credit, {**buckets, **debts})
        balances = _balances(conn, buckets)
        owes = _owed(conn, chunk, now)
        for owner in chunk:
            paid, got = out.get(owner, {}), into.get(owner, {})
            known = (GIVEN, RETURNED, _REFUND, "repay", "write_off")
            # What runs has used so much already, although it is charged later.
            due = owes.get(owner, 0)
            found[owner] = Totals(
                given=got.get(GIVEN, 0),
                returned=paid.get(RETURNED, 0),
                outside=max(0, _from_outside(got, known) - paid.get(REVERSED, 0)),
                passed_on=paid.get(GIVEN, 0) - got.get(RETURNED, 0),
                spent=paid.get("charge", 0) - got.get(_REFUND, 0) + due,
                balance=max(0, balances.get(owner, 0) - due),
            )
    return found


def _from_outside(got: dict[str, int], known: tuple[str, ...]) -> Sats:
    return sum(sats for kind, sats in got.items() if kind not in known)


def _sums(conn: Connection, side: object, owners: dict[str, str]) -> dict[str, dict[str, int]]:
    query = (
        select(side, _columns.kind, func.sum(_columns.amount))  # type: ignore[call-overload]
        .where(side.in_(owners), _columns.phase.in_(_MOVED))  # type: ignore[attr-defined]
        .group_by(side, _columns.kind)
    )
    sums: dict[str, dict[str, int]] = {}
    for account, kind, amount in conn.execute(query):
        kinds = sums.setdefault(owners[account], {})
        kinds[kind] = kinds.get(kind, 0) + int(amount)
    return sums


def _balances(conn: Connection, buckets: dict[str, str]) -> dict[str, int]:
    account = ledger_accounts.c
    query = select(account.id, account.credits_posted - account.debits_posted).where(account.id.in_(buckets))
    return {buckets[id]: posted for id, posted in conn.execute(query)}


def _owed(conn: Connection, owners: Iterable[str], now: datetime) -> dict[str, int]:
    query = select(money_buckets.c.owner).where(
        money_buckets.c.owner.in_(list(owners)), money_buckets.c.rate_msats > 0
    )
    flowing = list(conn.execute(query).scalars())
    at = {owner: load_bucket(conn, owner).run_to(now) for owner in flowing}
    return {owner: position.flow.carried // NSATS_PER_SAT for owner, position in at.items()}


def _used(conn: Connection, owner: str, at: Position, now: datetime, subject: str | None) -> Nsats:
    """Add up what one subject used, from its own segments and meters: those of an account may be many."""
    nsats = 0
    for row in conn.execute(select(meter_segments).where(meter_segments.c.subject == subject)):
        if row.owner == owner and row.began_at <= now:
            nsats += nsats_between(row.rate_msats, row.began_at, min(row.ended_at, now))
            nsats += row.msats * NSATS_PER_MSAT
    open_ones = select(meters).where(meters.c.subject == subject, meters.c.closed_at.is_(None))
    for row in conn.execute(open_ones):
        if row.owner == owner:
            nsats += counted_nsats(at, row.rate_msats, row.began_at, now)
    return nsats


def _chunks(owners: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(owners), _CHUNK):
        yield owners[start : start + _CHUNK]
