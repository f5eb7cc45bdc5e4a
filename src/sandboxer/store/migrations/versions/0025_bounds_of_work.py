"""How much queued jobs hold, and since when a domain's proof is missing."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("size_bytes", sa.Integer, nullable=False, server_default="0"))
    op.execute("UPDATE jobs SET size_bytes = length(CAST(submission AS TEXT)) WHERE state = 'queued'")
    op.create_index("ix_jobs_state_account_size_bytes", "jobs", ["state", "account", "size_bytes"])
    op.add_column("service_domains", sa.Column("failing_since", UtcDateTime))
