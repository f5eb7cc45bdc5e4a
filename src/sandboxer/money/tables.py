"""The tables of the money package.

`ledger_transfers` and `meter_segments` only ever grow and are what is true. The totals in `ledger_accounts`,
the rows of `ledger_pendings` and `spent_days` and the flow in `money_buckets` are derived from them in the
same transaction: no balance has to be summed up. `verification.verify` recomputes them all.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Index, Integer, Table, Text, true

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime, index_of, metadata, nullable, required

ledger_accounts = Table(
    "ledger_accounts",
    metadata,
    Column("id", Text, primary_key=True),
    *required(Text, "kind", "asset"),
    # The account that owns it; empty for the platform's own.
    Column("owner", Text, nullable=False),
    Column("may_overdraw", Boolean, nullable=False),
    *required(BigInteger, "debits_posted", "credits_posted", "debits_pending", "credits_pending"),
    # How many transfers touched it, and the sum of their digests modulo 2⁶²: both change with any of them.
    *required(BigInteger, "transfers", "digest"),
    Column("created_at", UtcDateTime, nullable=False),
    # The last line of defence: even a wrong program cannot spend what is not there.
    CheckConstraint("may_overdraw OR credits_posted - debits_posted - debits_pending >= 0", name="covered"),
    CheckConstraint("debits_pending >= 0 AND credits_pending >= 0", name="pendings"),
    Index(None, "owner"),
)

ledger_transfers = Table(
    "ledger_transfers",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    *required(Text, "id", "debit", "credit"),
    Column("amount", BigInteger, nullable=False),
    Column("asset", Text, nullable=False),
    # What it is for: credit, charge, refund, hold, repay, spend, …
    Column("kind", Text, nullable=False),
    # single, or one step of two: pending, then post or void.
    Column("phase", Text, nullable=False),
    # The pending transfer that a post or void resolves.
    Column("pending_id", Text),
    Column("reason", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("data", JsonValue),
    Column("digest", BigInteger, nullable=False),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("debit <> credit", name="sides"),
    Index("uq_ledger_transfers_id", "id", unique=True),
    # A pending transfer is resolved once.
    index_of("uq_ledger_transfers_pending_id", "pending_id", where="pending_id IS NOT NULL", unique=True),
    # Nothing is ever deleted, so SQLite's next number is the greatest and one, without a count beside it.
    Index(None, "debit", "seq"),
    Index(None, "credit", "seq"),
)

# The pending transfers that nobody has resolved yet.
ledger_pendings = Table(
    "ledger_pendings",
    metadata,
    Column("id", Text, primary_key=True),
    Column("debit", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Index(None, "debit"),
)

money_buckets = Table(
    "money_buckets",
    metadata,
    Column("owner", Text, primary_key=True),
    # The flow out of it: the sum of its open meters' rates, since when, and what is owed but not yet a sat.
    Column("rate_msats", BigInteger, nullable=False),
    Column("settled_at", UtcDateTime, nullable=False),
    Column("carried_nsats", BigInteger, nullable=False),
    # Names the next charge, so that no charge can be made twice.
    Column("settlements", BigInteger, nullable=False),
    # alive, grace or reaped, and what the next decision about it needs.
    Column("standing", Text, nullable=False),
    *nullable(UtcDateTime, "grace_began_at", "last_receipt_at"),
    Column("warned_s", Integer),
    # False for a budget that someone else gave: it ends with its last sat.
    Column("has_grace", Boolean, nullable=False, server_default=true()),
    # What was charged to it and paid for good, ever: what grace is measured by.
    Column("collected_sats", BigInteger, nullable=False, server_default="0"),
    # When a package above wants to be woken about it: a spending cap will be reached then.
    Column("look_at", UtcDateTime),
    # The next moment at which something becomes true by itself; the one timer reads its smallest value.
    Column("due_at", UtcDateTime),
    index_of(None, "due_at", where="due_at IS NOT NULL"),
)

# One row, as the operator set it: what holds for all buckets alike, whoever touches them.
money_policy = Table(
    "money_policy",
    metadata,
    Column("name", Text, primary_key=True),
    *required(BigInteger, "grace_us", "grace_cap_us", "reserve_us"),
    # For how long what is kept must be payable: so much cannot be given away.
    Column("deposit_us", BigInteger, nullable=False, server_default="0"),
    # The end of the last gap in time: a bucket settled later has no gap to look for.
    Column("gaps_until", UtcDateTime),
)

# Times of which not everything is charged (see `records`): outages, and time that no clock has witnessed.
time_gaps = Table(
    "time_gaps",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    *required(UtcDateTime, "began_at", "ended_at"),
    Index(None, "ended_at"),
)

# One row: the last sign of life of a server, in its own time and by the clock of its host.
server_beats = Table(
    "server_beats",
    metadata,
    Column("name", Text, primary_key=True),
    Column("moment", UtcDateTime, nullable=False),
    Column("boot_us", BigInteger, nullable=False),
    Column("boot_id", Text, nullable=False),
    # Up to when a server had everything in sight, which one that still opens has not. None: `moment`.
    Column("witnessed_at", UtcDateTime),
)

# Prices promised for a while; one sandbox may take each.
quotes = Table(
    "quotes",
    metadata,
    Column("id", Text, primary_key=True),
    *required(Text, "account", "profile"),
    *required(
        BigInteger,
        "vcpu_thousandths",
        "memory_mb",
        "disk_mb",
        "running_msats",
        "frozen_msats",
        "stored_msats",
        "egress_gb_msats",
        "duration_s",
        "sats",
    ),
    *required(UtcDateTime, "quoted_at", "expires_at"),
    # The sandbox that took it.
    Column("used_by", Text),
    Index(None, "expires_at"),
    Index(None, "account", "expires_at"),
)

meters = Table(
    "meters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    # What it measures: a sandbox, a snapshot, a volume.
    Column("subject", Text, nullable=False),
    # What the present rate is for: running, frozen, stored; or nothing, while there is nothing to measure.
    Column("kind", Text, nullable=False),
    Column("rate_msats", BigInteger, nullable=False),
    # Since when at this rate, or since the last gap; what was before is in `meter_segments`.
    Column("began_at", UtcDateTime, nullable=False),
    # Since when at this rate, gaps or not; None: since `began_at`.
    *nullable(UtcDateTime, "rated_at", "closed_at"),
    # How many rates it had before: numbers its segments.
    Column("segments", Integer, nullable=False),
    # The newest step of its subject's life it has heard of; older ones are late and change nothing.
    Column("step", BigInteger, nullable=False),
    # Whose key asked for it; empty: nobody's in particular.
    Column("key", Text, nullable=False, server_default=""),
    Index(None, "owner"),
    Index(None, "subject"),
    index_of("ix_meters_open", "owner", where="closed_at IS NULL"),
)

# What was used: a time at a rate, or a single charge in msats (began_at = ended_at).
meter_segments = Table(
    "meter_segments",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    # `<meter>:<n>`, or the caller's own id of a single charge.
    Column("id", Text, nullable=False, unique=True),
    *required(Text, "owner", "subject", "kind"),
    Column("rate_msats", BigInteger, nullable=False),
    *required(UtcDateTime, "began_at", "ended_at"),
    Column("msats", BigInteger, nullable=False),
    Column("key", Text, nullable=False, server_default=""),
    Index(None, "owner", "ended_at"),
    Index(None, "subject"),
    sqlite_autoincrement=True,
)

# What each key of an account has spent on each day: added up with the spending itself (see `segments`).
spent_days = Table(
    "spent_days",
    metadata,
    Column("account", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    # The midnight that began it, UTC.
    Column("day", UtcDateTime, primary_key=True),
    # Two sums, each of which fits: the whole sats of what was used, and the rests that made none.
    *required(BigInteger, "used_sats", "used_nsats"),
    # Given away, less what came back; may be below zero.
    Column("moved_sats", BigInteger, nullable=False),
    Index(None, "account", "day"),
)
