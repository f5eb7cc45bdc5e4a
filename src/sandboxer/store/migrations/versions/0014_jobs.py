"""Jobs: runs of code that outlive their request."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("is_owner", sa.Boolean, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("language", sa.Text, nullable=False),
        sa.Column("submission", JsonValue),
        sa.Column("webhook_url", sa.Text),
        sa.Column("sandbox_id", sa.Text),
        sa.Column("compile_process", sa.Text),
        sa.Column("run_process", sa.Text),
        sa.Column("sats", sa.Integer, nullable=False),
        sa.Column("problem", JsonValue),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("not_before", UtcDateTime),
        sa.Column("started_at", UtcDateTime),
        sa.Column("deadline", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("result", sa.LargeBinary),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_account_created_at_id", "jobs", ["account", "created_at", "id"])
    op.create_index("ix_jobs_state_created_at", "jobs", ["state", "created_at"])
    op.create_index("ix_jobs_ended_at", "jobs", ["ended_at"])
    op.create_index("ix_jobs_sandbox_id", "jobs", ["sandbox_id"])
    op.create_table(
        "run_sandboxes",
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", name="pk_run_sandboxes"),
    )
    op.create_index("ix_run_sandboxes_created_at", "run_sandboxes", ["created_at"])
