"""Ledger, meters and buckets."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _ledger()
    _meters()


def _ledger() -> None:
    op.create_table(
        "ledger_accounts",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("asset", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("may_overdraw", sa.Boolean, nullable=False),
        sa.Column("debits_posted", sa.BigInteger, nullable=False),
        sa.Column("credits_posted", sa.BigInteger, nullable=False),
        sa.Column("debits_pending", sa.BigInteger, nullable=False),
        sa.Column("credits_pending", sa.BigInteger, nullable=False),
        sa.Column("transfers", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_accounts"),
        sa.CheckConstraint(
            "may_overdraw OR credits_posted - debits_posted - debits_pending >= 0",
            name="ck_ledger_accounts_covered",
        ),
        sa.CheckConstraint(
            "debits_pending >= 0 AND credits_pending >= 0", name="ck_ledger_accounts_pendings"
        ),
    )
    op.create_index("ix_ledger_accounts_owner", "ledger_accounts", ["owner"])
    op.create_table(
        "ledger_transfers",
        sa.Column("seq", RowId, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("debit", sa.Text, nullable=False),
        sa.Column("credit", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("asset", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("pending_id", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("data", JsonValue),
        sa.Column("digest", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_ledger_transfers"),
        sa.CheckConstraint("amount > 0", name="ck_ledger_transfers_amount"),
        sa.CheckConstraint("debit <> credit", name="ck_ledger_transfers_sides"),
        sqlite_autoincrement=True,
    )
    some = sa.text("pending_id IS NOT NULL")
    op.create_index("uq_ledger_transfers_id", "ledger_transfers", ["id"], unique=True)
    op.create_index(
        "uq_ledger_transfers_pending_id",
        "ledger_transfers",
        ["pending_id"],
        unique=True,
        sqlite_where=some,
        postgresql_where=some,
    )
    op.create_index("ix_ledger_transfers_debit_seq", "ledger_transfers", ["debit", "seq"])
    op.create_index("ix_ledger_transfers_credit_seq", "ledger_transfers", ["credit", "seq"])
    op.create_table(
        "ledger_pendings",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("debit", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_pendings"),
    )
    op.create_index("ix_ledger_pendings_debit", "ledger_pendings", ["debit"])


def _meters() -> None:
    op.create_table(
        "money_buckets",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("rate_msats", sa.BigInteger, nullable=False),
        sa.Column("settled_at", UtcDateTime, nullable=False),
        sa.Column("carried_nsats", sa.BigInteger, nullable=False),
        sa.Column("settlements", sa.BigInteger, nullable=False),
        sa.Column("standing", sa.Text, nullable=False),
        sa.Column("grace_began_at", UtcDateTime),
        sa.Column("last_receipt_at", UtcDateTime),
        sa.Column("warned_s", sa.Integer),
        sa.Column("due_at", UtcDateTime),
        sa.PrimaryKeyConstraint("owner", name="pk_money_buckets"),
    )
    due = sa.text("due_at IS NOT NULL")
    op.create_index(
        "ix_money_buckets_due_at", "money_buckets", ["due_at"], sqlite_where=due, postgresql_where=due
    )
    op.create_table(
        "meters",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("rate_msats", sa.BigInteger, nullable=False),
        sa.Column("began_at", UtcDateTime, nullable=False),
        sa.Column("closed_at", UtcDateTime),
        sa.Column("segments", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_meters"),
    )
    op.create_index("ix_meters_owner", "meters", ["owner"])
    op.create_index("ix_meters_subject", "meters", ["subject"])
    op.create_table(
        "meter_segments",
        sa.Column("seq", RowId, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("rate_msats", sa.BigInteger, nullable=False),
        sa.Column("began_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime, nullable=False),
        sa.Column("msats", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_meter_segments"),
        sa.UniqueConstraint("id", name="uq_meter_segments_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_meter_segments_owner_ended_at", "meter_segments", ["owner", "ended_at"])
    op.create_index("ix_meter_segments_subject", "meter_segments", ["subject"])
