"""Which master key has sealed this database."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("server_claim", sa.Column("key_check", sa.Text))
