"""Webhooks: who is told of what, and what has been delivered."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    _endpoints()
    _deliveries()
    _attempts()
    op.create_table(
        "webhook_cursors",
        sa.Column("feed", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("feed", name="pk_webhook_cursors"),
    )


def _endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("kinds", JsonValue, nullable=False),
        sa.Column("hears_all", sa.Boolean, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text, nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("old_secret", sa.LargeBinary),
        sa.Column("old_secret_until", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endpoints"),
    )
    op.create_index("ix_webhook_endpoints_account_created_at", "webhook_endpoints", ["account", "created_at"])


def _deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("seq", RowId, nullable=False, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("url", sa.Text),
        sa.Column("secret", sa.LargeBinary),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("due_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.PrimaryKeyConstraint("seq", name="pk_webhook_deliveries"),
        sa.UniqueConstraint("id", name="uq_webhook_deliveries_id"),
        sa.UniqueConstraint("endpoint", "message", name="uq_webhook_deliveries_endpoint_message"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_webhook_deliveries_lane_due_at_seq",
        "webhook_deliveries",
        ["lane", "due_at", "seq"],
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index("ix_webhook_deliveries_endpoint_seq", "webhook_deliveries", ["endpoint", "seq"])
    op.create_index("ix_webhook_deliveries_ended_at", "webhook_deliveries", ["ended_at"])


def _attempts() -> None:
    op.create_table(
        "webhook_attempts",
        sa.Column("seq", RowId, nullable=False, autoincrement=True),
        sa.Column("delivery", sa.Text, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("took_ms", sa.Integer, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_webhook_attempts"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_attempts_delivery_seq", "webhook_attempts", ["delivery", "seq"])
