"""Links to ports inside sandboxes."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "previews",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("is_one_time", sa.Boolean, nullable=False),
        sa.Column("wakes", sa.Boolean, nullable=False),
        sa.Column("hold_s", sa.Integer, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("used_at", UtcDateTime),
        sa.Column("revoked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_previews"),
    )
    op.create_index("ix_previews_sandbox_id_created_at", "previews", ["sandbox_id", "created_at"])
