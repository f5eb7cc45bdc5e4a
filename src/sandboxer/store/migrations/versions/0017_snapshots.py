"""Snapshots."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("origin", sa.Text))
    op.create_table(
        "snapshots",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("parent_id", sa.Text),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("resources", JsonValue, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("labels", JsonValue, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("is_measured", sa.Boolean, nullable=False),
        sa.Column("rate_msats", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("state_since", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("paid_expires_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("locked_at", UtcDateTime),
        sa.Column("took_ms", JsonValue, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_snapshots"),
    )
    op.create_index("ix_snapshots_account_created_at_id", "snapshots", ["account", "created_at", "id"])
    op.create_index("ix_snapshots_state", "snapshots", ["state"])
    op.create_index("ix_snapshots_sandbox_id", "snapshots", ["sandbox_id"])
    op.create_index("ix_snapshots_parent_id", "snapshots", ["parent_id"])
    op.create_table(
        "disk_heads",
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("snapshot_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", name="pk_disk_heads"),
    )
