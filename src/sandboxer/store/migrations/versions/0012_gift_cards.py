"""Gift cards: a keyed look-up of a code, what was redeemed of it, and mail that asks for approval."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    _cards()
    _redemptions()
    _mails()


def _cards() -> None:
    op.create_table(
        "gift_cards",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("cents", sa.BigInteger, nullable=False),
        sa.Column("written_off", sa.BigInteger, nullable=False),
        sa.Column("lookup", sa.Text),
        sa.Column("claim_hash", sa.Text, nullable=False),
        sa.Column("account", sa.Text),
        sa.Column("invoice", sa.Text),
        sa.Column("approval", JsonValue, nullable=False),
        sa.Column("approval_secret", sa.LargeBinary),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("paid_at", UtcDateTime),
        sa.Column("shown_at", UtcDateTime),
        sa.Column("revoked_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_gift_cards"),
    )
    op.create_index("uq_gift_cards_lookup", "gift_cards", ["lookup"], unique=True)
    op.create_index("ix_gift_cards_created_at_id", "gift_cards", ["created_at", "id"])


def _redemptions() -> None:
    op.create_table(
        "gift_redemptions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("card", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("tier", sa.Integer),
        sa.Column("months", sa.Integer),
        sa.Column("cents", sa.BigInteger, nullable=False),
        sa.Column("sats", sa.BigInteger),
        sa.Column("rate", sa.Text),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("is_new_account", sa.Boolean, nullable=False),
        sa.Column("claim_hash", sa.Text),
        sa.Column("public_key", sa.Text),
        sa.Column("entitled_until", UtcDateTime),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime),
        sa.PrimaryKeyConstraint("id", name="pk_gift_redemptions"),
    )
    op.create_index(
        "uq_gift_redemptions_card_request_id", "gift_redemptions", ["card", "request_id"], unique=True
    )
    pending = sa.text("state = 'pending_approval'")
    op.create_index(
        "ix_gift_redemptions_expires_at",
        "gift_redemptions",
        ["expires_at"],
        sqlite_where=pending,
        postgresql_where=pending,
    )


def _mails() -> None:
    op.create_table(
        "gift_mails",
        sa.Column("redemption", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("due_at", UtcDateTime),
        sa.PrimaryKeyConstraint("redemption", name="pk_gift_mails"),
    )
    due = sa.text("due_at IS NOT NULL")
    op.create_index("ix_gift_mails_due_at", "gift_mails", ["due_at"], sqlite_where=due, postgresql_where=due)
