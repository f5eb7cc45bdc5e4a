"""What is kept needs a deposit that cannot be given away: for how long it must last."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("money_policy", sa.Column("deposit_us", sa.BigInteger, nullable=False, server_default="0"))
