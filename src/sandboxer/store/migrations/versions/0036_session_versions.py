"""Sessions are fenced by a version, as every record is."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("version", sa.Integer, nullable=False, server_default="0"))
