"""Keys, events, idempotency."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", RowId, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("data", JsonValue, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_subject_id", "events", ["subject", "id"])
    op.create_table(
        "keys",
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary, nullable=False),
        sa.Column("is_owner", sa.Boolean, nullable=False),
        sa.Column("accepts_v1", sa.Boolean, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("revoked_at", UtcDateTime, nullable=True),
        sa.PrimaryKeyConstraint("public_key", name="pk_keys"),
    )
    op.create_index("ix_keys_account", "keys", ["account"])
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("claim", sa.Text, nullable=False),
        sa.Column("request_hash", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("headers", JsonValue, nullable=True),
        sa.Column("body", sa.LargeBinary, nullable=True),
        sa.Column("begun_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_expires_at", "idempotency", ["expires_at"])
