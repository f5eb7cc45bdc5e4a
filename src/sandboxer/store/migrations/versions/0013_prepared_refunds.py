"""Refunds remember the transaction that was signed for them, what it costs, and why they wait."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    for name in ("prepared_txid", "prepared", "fee", "held"):
        op.add_column("refunds", sa.Column(name, sa.Text))
