"""Quotes that can be named; one policy for all buckets; budgets without grace; when a cap is reached."""

from datetime import timedelta

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0007"
down_revision = "0006"
_US = timedelta(microseconds=1)


def upgrade() -> None:
    _quotes()
    policy = op.create_table(
        "money_policy",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("grace_us", sa.BigInteger, nullable=False),
        sa.Column("grace_cap_us", sa.BigInteger, nullable=False),
        sa.Column("reserve_us", sa.BigInteger, nullable=False),
    )
    # What every server before this one went by; the next start writes what its settings say.
    row = {"grace_us": timedelta(minutes=1) // _US, "grace_cap_us": timedelta(minutes=10) // _US}
    op.bulk_insert(policy, [{"name": "money", **row, "reserve_us": timedelta(minutes=10) // _US}])
    op.add_column(
        "money_buckets", sa.Column("has_grace", sa.Boolean, nullable=False, server_default=sa.true())
    )
    op.add_column("money_buckets", sa.Column("look_at", UtcDateTime))
    buckets = sa.table("money_buckets", sa.column("owner"), sa.column("has_grace"))
    keys = sa.table("delegated_keys", sa.column("account", sa.Text))
    children = sa.select(keys.c.account)
    op.execute(sa.update(buckets).where(buckets.c.owner.in_(children)).values(has_grace=sa.false()))


def _quotes() -> None:
    numbers = (
        "vcpu_thousandths",
        "memory_mb",
        "disk_mb",
        "running_msats",
        "frozen_msats",
        "stored_msats",
        "egress_gb_msats",
        "duration_s",
        "sats",
    )
    op.create_table(
        "quotes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in numbers),
        sa.Column("quoted_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.Column("used_by", sa.Text),
    )
    op.create_index("ix_quotes_expires_at", "quotes", ["expires_at"])
