"""Signs of life of the server, and times of which not everything is charged."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import RowId, UtcDateTime

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_table(
        "server_beats",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("moment", UtcDateTime, nullable=False),
        sa.Column("boot_us", sa.BigInteger, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
    )
    op.create_table(
        "time_gaps",
        sa.Column("seq", RowId, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("began_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime, nullable=False),
    )
    op.create_index("ix_time_gaps_ended_at", "time_gaps", ["ended_at"])
    op.add_column("money_policy", sa.Column("gaps_until", UtcDateTime))
    op.add_column("meters", sa.Column("rated_at", UtcDateTime))
