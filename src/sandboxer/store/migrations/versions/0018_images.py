"""Published images."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "published_images",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("visibility", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("base", sa.Text, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("resources", JsonValue, nullable=False),
        sa.Column("config", JsonValue, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("findings", JsonValue, nullable=False),
        sa.Column("findings_count", sa.Integer, nullable=False),
        sa.Column("stripped", JsonValue, nullable=False),
        sa.Column("stripped_count", sa.Integer, nullable=False),
        sa.Column("rate_msats", sa.BigInteger, nullable=False),
        sa.Column("hands", sa.Integer, nullable=False),
        sa.Column("offered_to", sa.Text),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("state_since", UtcDateTime, nullable=False),
        sa.Column("verified_at", UtcDateTime),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("locked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_published_images"),
    )
    listed = ["created_at", "id"]
    op.create_index("ix_published_images_account_created_at_id", "published_images", ["account", *listed])
    op.create_index(
        "ix_published_images_visibility_created_at_id", "published_images", ["visibility", *listed]
    )
    op.create_index("ix_published_images_state", "published_images", ["state"])
    op.create_table(
        "image_grants",
        sa.Column("image_id", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("granted_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("image_id", "account", name="pk_image_grants"),
    )
    op.create_index("ix_image_grants_account", "image_grants", ["account"])
