"""Up to when a server had everything in sight, apart from its last sign of life."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    # Null: the sign of life itself, as it was before.
    op.add_column("server_beats", sa.Column("witnessed_at", UtcDateTime))
