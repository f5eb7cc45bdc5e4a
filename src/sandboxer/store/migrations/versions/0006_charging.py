"""What a sandbox pays: its rates, fixed when it was created. Those of before pay nothing."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("terms", JsonValue))
