"""Invoices: an address, an amount, and the outputs that paid it."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    _chains()
    _invoices()
    _outputs()
    _steps()
    _refunds()


def _chains() -> None:
    op.create_table(
        "invoice_chains",
        sa.Column("chain", sa.Text, nullable=False),
        sa.Column("next_index", sa.BigInteger, nullable=False),
        sa.Column("tip", sa.BigInteger, nullable=False),
        sa.Column("looked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("chain", name="pk_invoice_chains"),
    )


def _invoices() -> None:
    op.create_table(
        "invoices",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("tier", sa.Integer),
        sa.Column("months", sa.Integer),
        sa.Column("cents", sa.BigInteger),
        sa.Column("reference", sa.Text),
        sa.Column("asset", sa.Text, nullable=False),
        sa.Column("atomic", sa.Text, nullable=False),
        sa.Column("sats", sa.BigInteger, nullable=False),
        sa.Column("usd", sa.Text),
        sa.Column("btc_usd", sa.Text),
        sa.Column("rate_sources", JsonValue, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("address_index", sa.BigInteger, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("is_new_account", sa.Boolean, nullable=False),
        sa.Column("claim_hash", sa.Text),
        sa.Column("public_key", sa.Text),
        sa.Column("refund_address", sa.Text),
        sa.Column("confirmations", sa.Integer, nullable=False),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.Column("confirm_by", UtcDateTime, nullable=False),
        sa.Column("deliveries", sa.Integer, nullable=False),
        sa.Column("is_delivered", sa.Boolean, nullable=False),
        sa.Column("granted", JsonValue, nullable=False),
        sa.Column("watch_until", UtcDateTime),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_invoices"),
    )
    op.create_index("ix_invoices_account", "invoices", ["account"])
    op.create_index("ix_invoices_asked_by_state", "invoices", ["asked_by", "state"])
    op.create_index(
        "ix_invoices_asset_watch_until",
        "invoices",
        ["asset", "watch_until"],
        sqlite_where=sa.text("watch_until IS NOT NULL"),
        postgresql_where=sa.text("watch_until IS NOT NULL"),
    )
    op.create_index("ix_invoices_created_at_id", "invoices", ["created_at", "id"])
    op.create_index("uq_invoices_asset_address", "invoices", ["asset", "address"], unique=True)
    op.create_index("uq_invoices_asset_address_index", "invoices", ["asset", "address_index"], unique=True)


def _outputs() -> None:
    op.create_table(
        "invoice_outputs",
        sa.Column("chain", sa.Text, nullable=False),
        sa.Column("txid", sa.Text, nullable=False),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("invoice", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("block", sa.Text),
        sa.Column("height", sa.BigInteger),
        sa.Column("is_there", sa.Boolean, nullable=False),
        sa.Column("is_unlocked", sa.Boolean, nullable=False),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.Column("is_in_time", sa.Boolean, nullable=False),
        sa.Column("first_seen_at", UtcDateTime, nullable=False),
        sa.Column("settled", sa.Text, nullable=False),
        sa.Column("sale_sats", sa.BigInteger, nullable=False),
        sa.Column("bucket_sats", sa.BigInteger, nullable=False),
        sa.Column("is_for_price", sa.Boolean, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("chain", "txid", "output", name="pk_invoice_outputs"),
    )
    op.create_index("ix_invoice_outputs_invoice", "invoice_outputs", ["invoice"])


def _steps() -> None:
    op.create_table(
        "invoice_steps",
        sa.Column("seq", RowId, nullable=False, autoincrement=True),
        sa.Column("invoice", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("signal", sa.Text, nullable=False),
        sa.Column("data", JsonValue, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_invoice_steps"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_invoice_steps_invoice_number", "invoice_steps", ["invoice", "number"], unique=True)


def _refunds() -> None:
    op.create_table(
        "refunds",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("invoice", sa.Text, nullable=False),
        sa.Column("chain", sa.Text, nullable=False),
        sa.Column("txid", sa.Text, nullable=False),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("received", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("kept", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("sent_txid", sa.Text),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_refunds"),
    )
    op.create_index("ix_refunds_invoice", "refunds", ["invoice"])
    op.create_index("ix_refunds_state_created_at", "refunds", ["state", "created_at"])
