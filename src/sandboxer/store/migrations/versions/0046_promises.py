"""A sandbox keeps what its create was promised: of its workspace, of what runs before it is ready, of its
place.
"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0044"


def upgrade() -> None:
    # Sealed from the first, as `inputs` is.
    op.add_column("sandboxes", sa.Column("promises", sa.JSON(none_as_null=True), nullable=True))
