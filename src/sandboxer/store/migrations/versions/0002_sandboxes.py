"""Sandboxes and their labels."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("profile_version", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("trust", sa.Text, nullable=False),
        sa.Column("resources", JsonValue, nullable=False),
        sa.Column("env", JsonValue, nullable=False),
        sa.Column("labels", JsonValue, nullable=False),
        sa.Column("inputs", JsonValue, nullable=False),
        sa.Column("consumer", JsonValue, nullable=False),
        sa.Column("ttl_s", sa.Float, nullable=False),
        sa.Column("ttl_max_s", sa.Float, nullable=False),
        sa.Column("idle_timeout_s", sa.Float),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("state_since", UtcDateTime, nullable=False),
        sa.Column("ready_at", UtcDateTime),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("ttl_left_s", sa.Float),
        sa.Column("handle", JsonValue),
        sa.Column("timings_ms", JsonValue, nullable=False),
        sa.Column("report", JsonValue),
        sa.PrimaryKeyConstraint("id", name="pk_sandboxes"),
    )
    op.create_index("ix_sandboxes_account_created_at_id", "sandboxes", ["account", "created_at", "id"])
    op.create_index("ix_sandboxes_state", "sandboxes", ["state"])
    op.create_table(
        "sandbox_labels",
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "key", name="pk_sandbox_labels"),
        sa.ForeignKeyConstraint(
            ["sandbox_id"], ["sandboxes.id"], name="fk_sandbox_labels_sandbox_id_sandboxes"
        ),
    )
    op.create_index("ix_sandbox_labels_key_value", "sandbox_labels", ["key", "value"])
