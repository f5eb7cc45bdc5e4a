"""A wallet's session says from which network it was opened."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.add_column("wallet_sessions", sa.Column("network", sa.Text, nullable=False, server_default=""))
    op.create_index("ix_wallet_sessions_network", "wallet_sessions", ["network"])
