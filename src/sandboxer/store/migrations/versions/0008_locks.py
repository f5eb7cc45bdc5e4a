"""Locks: what may only be destroyed or unlocked with a second proof. And what an Idempotency-Key has made."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("locked_at", UtcDateTime))
    op.add_column("idempotency", sa.Column("made", sa.Text))
