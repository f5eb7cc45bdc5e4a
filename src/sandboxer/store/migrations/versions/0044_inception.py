"""A sandbox may be granted to make others from inside."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("inception", JsonValue, nullable=True))
