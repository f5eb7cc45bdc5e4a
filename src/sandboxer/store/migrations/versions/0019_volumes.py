"""Volumes."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("volumes", JsonValue))
    op.create_table(
        "volumes",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("taken_name", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("size_mb", sa.BigInteger, nullable=False),
        sa.Column("origin", sa.Text),
        sa.Column("labels", JsonValue, nullable=False),
        sa.Column("rate_msats", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("state_since", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("locked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
        sa.UniqueConstraint("taken_name", name="uq_volumes_taken_name"),
    )
    op.create_index("ix_volumes_account_created_at_id", "volumes", ["account", "created_at", "id"])
    op.create_index("ix_volumes_state", "volumes", ["state"])
    op.create_table(
        "volume_attachments",
        sa.Column("volume_id", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("is_read_only", sa.Boolean, nullable=False),
        sa.Column("attached_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("volume_id", "sandbox_id", name="pk_volume_attachments"),
    )
