"""A sandbox knows which network it was asked to have."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("network", sa.Text, nullable=True))
