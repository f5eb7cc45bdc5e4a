"""A sandbox keeps how its backend was chosen, and who was asked before it."""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0046"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("route", sa.JSON(none_as_null=True), nullable=True))
