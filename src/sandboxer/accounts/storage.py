"""Nothing durable without funds: the one door for whatever stays on a disk when nothing runs.

A volume, a snapshot, an image: each needs a deposit, that is, sats for all that its account keeps for a while
(`deposit`). The sats stay the account's own and pay for what is kept; they cannot be given away meanwhile
(`money.buckets.spend` leaves them). What an account may keep without a deposit is `unpaid_mb`, and is nothing
unless the operator says otherwise.

The disk of a sandbox that ran out of sats was not asked about here: it is kept as long as what it paid would
have kept it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.amounts import NSATS_PER_SAT, Rate, Sats, microseconds, sats_for
from sandboxer.money.buckets import frozen, settle_account, stored_rate

ACTOR = "system:storage"
# What an account without funds may keep in the database of one kind of thing (its secrets): enough to try it,
# too little to be worth a new keypair.
UNFUNDED_COUNT = 16
UNFUNDED_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePolicy:
    # For how long whoever keeps something must be able to pay for all that it keeps.
    deposit: timedelta = timedelta(days=1)
    # What an account without a deposit may keep in all.
    unpaid_mb: int = 0
    # How long the disk of a sandbox stays at least that ran out of sats, however little it paid.
    least: timedelta = timedelta(minutes=10)


STORAGE = StoragePolicy()


def deposit_for(rate: Rate, policy: StoragePolicy) -> Sats:
    """The sats that must be there before so much is kept: at least one, where keeping costs nothing too."""
    return max(1, sats_for(rate, policy.deposit))


def kept_for(
    *, stored: Rate, paid: Sats, available: Sats, retention: timedelta, policy: StoragePolicy
) -> timedelta:
    """How long the disk of a sandbox that does not run any more is kept.

    For the retention time if its account can put down a deposit for it, or if keeping costs nothing. Else as
    long as what the sandbox paid would have kept it, within bounds: otherwise a few sats would buy a week of
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
    """The door. May this account keep something that costs `more` a second, beside all that it keeps?

    `held_mb` is all that it would keep then. Returns what is available. Raises InsufficientCredit.
    """
    records.ensure(conn, account, actor=ACTOR, now=now)
    demand_may(conn, account, Act.KEEP, now=now)
    bucket = settle_account(conn, account, now=now)
    # Not less the slice that meters keep for themselves: those of what is kept are part of the deposit.
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
    """The door for small things that lie in the database and have no price. May it keep so many, so large?

    Few of them need no funds. Raises InsufficientCredit.
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
