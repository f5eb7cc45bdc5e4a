"""The network around the address from which an invoice was asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    # What is open already was asked for by addresses; within the hour it is paid or has expired.
    op.add_column("invoices", sa.Column("asked_near", sa.Text))
    op.create_index("ix_invoices_asked_near_state", "invoices", ["asked_near", "state"])
    op.create_index("ix_invoices_state_asked_near", "invoices", ["state", "asked_near"])
