"""A sandbox knows what becomes of it when its time is over (none: it is destroyed), and a published image by
which tags a template of its name means it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("at_end", sa.Text, nullable=True))
    op.add_column("published_images", sa.Column("tags", sa.JSON, nullable=True))
