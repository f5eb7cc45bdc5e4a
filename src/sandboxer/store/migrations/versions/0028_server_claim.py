"""Which server's turn it is to write."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.create_table(
        "server_claim",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("probes", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_server_claim"),
    )
    op.execute("INSERT INTO server_claim (id, epoch, holder, probes) VALUES (1, 0, '', 0)")
