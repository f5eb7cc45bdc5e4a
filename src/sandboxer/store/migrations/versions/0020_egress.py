"""Egress rules, and each sandbox's way out: its authority, its traffic, what it was refused."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "egress_policies",
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("policy", JsonValue, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_egress_policies"),
    )
    op.create_table(
        "egress_outlets",
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("certificate", sa.LargeBinary, nullable=False),
        sa.Column("sealed_key", sa.LargeBinary, nullable=False),
        sa.Column("sent", sa.BigInteger, nullable=False),
        sa.Column("received", sa.BigInteger, nullable=False),
        sa.Column("charged", sa.BigInteger, nullable=False),
        sa.Column("charges", sa.Integer, nullable=False),
        sa.Column("denials", JsonValue, nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", name="pk_egress_outlets"),
    )
