"""Secrets and SSH keys."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("account", "name", name="pk_secrets"),
    )
    op.create_table(
        "sandbox_secrets",
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("in_env", sa.Boolean, nullable=False),
        sa.Column("in_file", sa.Boolean, nullable=False),
        sa.Column("injected_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "name", name="pk_sandbox_secrets"),
    )
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text),
        sa.Column("algorithm", sa.Text, nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("revoked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_ssh_keys"),
    )
    op.create_index("ix_ssh_keys_account_created_at", "ssh_keys", ["account", "created_at"])
    op.create_index("ix_ssh_keys_fingerprint", "ssh_keys", ["fingerprint"])
