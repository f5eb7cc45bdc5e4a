"""Sessions: interpreters that keep their state; and what a sandbox goes back to when its boost ends."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("boosted_from", JsonValue))
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("owns_sandbox", sa.Boolean, nullable=False),
        sa.Column("language", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("process_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("env", JsonValue, nullable=False),
        sa.Column("cwd", sa.Text),
        sa.Column("idle_s", sa.Float, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.Column("last_active_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_account_created_at_id", "sessions", ["account", "created_at", "id"])
    op.create_index("ix_sessions_state", "sessions", ["state"])
    op.create_index("ix_sessions_sandbox_id", "sessions", ["sandbox_id"])
