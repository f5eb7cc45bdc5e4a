"""How high each chain was seen, where in it a payment lies, when its credit was taken back and restored."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "chain_heads",
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("height", sa.BigInteger, nullable=False),
        sa.Column("seen_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("network", name="pk_chain_heads"),
    )
    op.add_column("payments", sa.Column("height", sa.BigInteger))
    op.add_column("payments", sa.Column("reversed_at", UtcDateTime))
    op.add_column("payments", sa.Column("restored_at", UtcDateTime))
