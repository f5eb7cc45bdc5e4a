"""Whose the answers kept for Idempotency-Keys are, and how much they take."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.add_column("idempotency", sa.Column("owner", sa.Text, nullable=False, server_default=""))
    op.add_column("idempotency", sa.Column("bytes", sa.Integer, nullable=False, server_default="0"))
    is_postgres = op.get_bind().dialect.name == "postgresql"
    owner = "split_part(scope, ' ', 1)" if is_postgres else "substr(scope, 1, instr(scope || ' ', ' ') - 1)"
    op.execute(f"UPDATE idempotency SET owner = {owner}, bytes = COALESCE(length(body), 0)")
    op.create_index("ix_idempotency_kept", "idempotency", ["owner", "begun_at", "bytes"])
