"""Which installation this database is, and since when things without a record are held."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_table(
        "installation",
        sa.Column("only", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.Column("made_at", UtcDateTime, nullable=False),
    )
    op.create_table(
        "quarantine",
        sa.Column("backend", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("first_seen", UtcDateTime, nullable=False),
        sa.Column("last_seen", UtcDateTime, nullable=False),
        sa.Column("seen_for_ms", sa.BigInteger, nullable=False),
    )
