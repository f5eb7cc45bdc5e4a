"""A key may have a bearer token, of which the hash is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    op.add_column("keys", sa.Column("bearer_hash", sa.Text, nullable=True))
    op.create_index("ix_keys_bearer_hash", "keys", ["bearer_hash"])
