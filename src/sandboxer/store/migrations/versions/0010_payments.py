"""Payments: one record before anything is broadcast, and credit that is still pending."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "payments",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("payer", sa.Text, nullable=False),
        sa.Column("nonce", sa.Text, nullable=False),
        sa.Column("payload_hash", sa.Text, nullable=False),
        sa.Column("identifier", sa.Text),
        sa.Column("scheme", sa.Text, nullable=False),
        sa.Column("asset", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("sats", sa.BigInteger, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("details", JsonValue, nullable=False),
        sa.Column("payload", JsonValue),
        sa.Column("requirements", JsonValue),
        sa.Column("txid", sa.Text),
        sa.Column("block", sa.Text),
        sa.Column("valid_until", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("look_at", UtcDateTime),
        sa.Column("looks", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_payments"),
    )
    op.create_index("uq_payments_network_payer_nonce", "payments", ["network", "payer", "nonce"], unique=True)
    named = sa.text("identifier IS NOT NULL")
    op.create_index(
        "uq_payments_payer_identifier",
        "payments",
        ["payer", "identifier"],
        unique=True,
        sqlite_where=named,
        postgresql_where=named,
    )
    op.create_index("ix_payments_account_created_at", "payments", ["account", "created_at"])
    due = sa.text("look_at IS NOT NULL")
    op.create_index("ix_payments_look_at", "payments", ["look_at"], sqlite_where=due, postgresql_where=due)
