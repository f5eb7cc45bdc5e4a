"""Wallets, challenges, sessions; keys that expire, are suspended, and hand their secret over once."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "wallets",
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("revoked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("address", name="pk_wallets"),
    )
    op.create_index("ix_wallets_account", "wallets", ["account"])
    op.create_table(
        "challenges",
        sa.Column("nonce", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("bound_to", sa.Text, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("nonce", name="pk_challenges"),
    )
    op.create_index("ix_challenges_purpose_account", "challenges", ["purpose", "account"])
    op.create_index("ix_challenges_expires_at", "challenges", ["expires_at"])
    op.create_table(
        "wallet_sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.Column("revoked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_wallet_sessions"),
    )
    op.create_index("ix_wallet_sessions_address", "wallet_sessions", ["address"])
    op.create_index("ix_wallet_sessions_expires_at", "wallet_sessions", ["expires_at"])
    op.create_table(
        "identity_secrets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_identity_secrets"),
    )
    # Keys made before this have no hash; theirs is written when they are regenerated.
    op.add_column("keys", sa.Column("secret_hash", sa.Text))
    op.add_column("keys", sa.Column("expires_at", UtcDateTime))
    op.add_column("keys", sa.Column("suspended_at", UtcDateTime))
    op.add_column("keys", sa.Column("suspended_why", sa.Text))
    op.add_column("keys", sa.Column("rotated_at", UtcDateTime))
    op.add_column("keys", sa.Column("claim_hash", sa.Text))
    op.add_column("keys", sa.Column("revealed_at", UtcDateTime))
    # Every key so far was shown when it was made.
    op.execute("UPDATE keys SET revealed_at = created_at")
