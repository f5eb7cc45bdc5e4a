"""A preview may say what programs inside see as the host of requests to their ports."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    op.add_column("previews", sa.Column("host", sa.Text, nullable=True))
