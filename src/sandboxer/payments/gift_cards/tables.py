"""The tables of gift cards. What is on a card is a ledger account in US cents; no column says it.

The words are nowhere: `lookup` is their hash under a key that the database does not hold.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, Table, Text, text

from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata

gift_cards = Table(
    "gift_cards",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("written_off", BigInteger, nullable=False),
    Column("lookup", Text, nullable=True),
    Column("claim_hash", Text, nullable=False),
    Column("account", Text, nullable=True),
    Column("invoice", Text, nullable=True),
    # Whom to ask: {"email": …, "webhook": …}; empty: nobody.
    Column("approval", JsonValue, nullable=False),
    Column("approval_secret", LargeBinary, nullable=True),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("paid_at", UtcDateTime, nullable=True),
    Column("shown_at", UtcDateTime, nullable=True),
    Column("revoked_at", UtcDateTime, nullable=True),
    Index("uq_gift_cards_lookup", "lookup", unique=True),
    Index(None, "created_at", "id"),
)

_PENDING = text("state = 'pending_approval'")

gift_redemptions = Table(
    "gift_redemptions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("card", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tier", Integer, nullable=True),
    Column("months", Integer, nullable=True),
    Column("cents", BigInteger, nullable=False),
    Column("sats", BigInteger, nullable=True),
    Column("rate", Text, nullable=True),
    Column("account", Text, nullable=False),
    Column("is_new_account", Boolean, nullable=False),
    Column("claim_hash", Text, nullable=True),
    Column("public_key", Text, nullable=True),
    Column("entitled_until", UtcDateTime, nullable=True),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=True),
    Index("uq_gift_redemptions_card_request_id", "card", "request_id", unique=True),
    Index(None, "expires_at", sqlite_where=_PENDING, postgresql_where=_PENDING),
)

_DUE = text("due_at IS NOT NULL")

# Mail still to be sent. The text is made when it is sent: the link that approves is not kept.
gift_mails = Table(
    "gift_mails",
    metadata,
    Column("redemption", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime, nullable=True),
    Index(None, "due_at", sqlite_where=_DUE, postgresql_where=_DUE),
)
