"""Whatever stays on a disk while nothing runs needs a deposit: a volume, a snapshot, an image.

The deposit is enough sats to keep all that the account keeps for a while (`deposit`). The sats stay the
account's own and pay for what is kept, but they cannot be given away meanwhile (`money.buckets.spend` leaves
them). Without a deposit an account may keep `unpaid_mb`, which is nothing unless the operator says otherwise.

The disk of a sandbox that ran out of sats needs no deposit: it is kept as long as what it paid would have
kept it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import NSATS_PER_SAT, Rate, Sats, microseconds, sats_for
from sandboxer.money.buckets import frozen, settle_account, stored_rate

ACTOR = "system:storage"
# What an account without funds may keep in the database (its secrets): enough to try it, and too little to be
# worth a new account.
UNFUNDED_COUNT = 16
UNFUNDED_BYTES = 32 * 1024


@value_class
class StoragePolicy:
    # For so long an account must be able to pay for all that it keeps.
    deposit: timedelta = timedelta(days=1)
    # What an account without a deposit may keep in all.
    unpaid_mb: int = 0
    # The disk of a sandbox that ran out of sats stays at least so long, however little it paid.
    least: timedelta = timedelta(minutes=10)


STORAGE = StoragePolicy()


def deposit_for(rate: Rate, policy: StoragePolicy) -> Sats:
    """Return the sats that must be there to keep something at this rate: at least one, even at rate zero."""
    return max(1, sats_for(rate, policy.deposit))


def kept_for(
    *, stored: Rate, paid: Sats, available: Sats, retention: timedelta, policy: StoragePolicy
) -> timedelta:
    """Return how long the disk of a sandbox that does not run any more is kept.

    It is the retention time if its account has the deposit for it, or if keeping costs nothing. Otherwise it
    is as long as what the sandbox paid would have kept it, within bounds; a few sats must not buy a week of
    any disk.
    """
    if not stored or available >= deposit_for(stored, policy):
        return retention
    most = microseconds(retention)
    earned = min(most, paid * NSATS_PER_SAT // stored)
    return min(retention, max(policy.least, timedelta(microseconds=earned)))


def demand_funds(
    conn: Connection, account: str, *, more: Rate, held_mb: int, policy: StoragePolicy, now: datetime
) -> Sats:
    """Raise InsufficientCredit unless this account may keep something more that costs `more` a second.

    `held_mb` is all that it would keep then. Returns what is available.
    """
    records.ensure(conn, account, actor=ACTOR, now=now)
    demand_may(conn, account, Act.KEEP, now=now)
    bucket = settle_account(conn, account, now=now)
    # The reserve of running meters is not subtracted, because meters of what is kept are part of the deposit.
    available = 0 if bucket.debt else max(0, bucket.spendable - frozen(conn, account))
    needed = deposit_for(stored_rate(conn, account) + more, policy)
    if available < needed and held_mb > policy.unpaid_mb:
        raise InsufficientCredit(
            required=needed,
            available=available,
            account=account,
            hint="What is kept needs a deposit first: add credit, or keep less.",
        )
    return available


def demand_funds_for_rows(
    conn: Connection, account: str, *, what: str, count: int, size_bytes: int, now: datetime
) -> None:
    """Raise InsufficientCredit unless this account may keep so many small things in the database.

    They have no price, and a few of them need no funds.
    """
    if count <= UNFUNDED_COUNT and size_bytes <= UNFUNDED_BYTES:
        return
    found = records.ensure(conn, account, actor=ACTOR, now=now)
    if found.entitled_until is not None and found.entitled_until > now:
        return
    bucket = settle_account(conn, account, now=now)
    if bucket.debt or bucket.spendable < 1:
        few = f"{UNFUNDED_COUNT} {what}" + (
            f" of {UNFUNDED_BYTES // 1024} KiB together" if size_bytes else ""
        )
        raise InsufficientCredit(
            required=1,
            available=0,
            account=account,
            hint=f"An account without credit keeps at most {few}: add credit, or remove some.",
        )
