"""The tables of payments, each recorded before anything is broadcast, and of the heads of chains."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, text

from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata

payments = Table(
    "payments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    # Why it is over, in the words of the chain or relay.
    Column("reason", Text, nullable=False),
    # What the payer must not be able to use twice: CAIP-2 network, address, the chain's own nonce.
    Column("network", Text, nullable=False),
    Column("payer", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    # SHA-256 of what was presented, and the payer's own name for it (the `payment-identifier` extension).
    Column("payload_hash", Text, nullable=False),
    Column("identifier", Text, nullable=True),
    Column("scheme", Text, nullable=False),
    Column("asset", Text, nullable=False),
    # Smallest units as text: 18 decimals do not fit 64 bits.
    Column("amount", Text, nullable=False),
    Column("sats", BigInteger, nullable=False),
    # Who is credited, and what for: create, extend, topup, key.
    Column("account", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("details", JsonValue, nullable=False),
    # To settle it again after a crash or a reorganisation; bound to our address, so worth nothing to others.
    Column("payload", JsonValue, nullable=True),
    Column("requirements", JsonValue, nullable=True),
    Column("txid", Text, nullable=True),
    Column("block", Text, nullable=True),
    # The height of that block; NULL: not known (older records), or not in one.
    Column("height", BigInteger, nullable=True),
    # After this the authorization is worthless.
    Column("valid_until", UtcDateTime, nullable=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # When the reconciler looks again; NULL: no need.
    Column("look_at", UtcDateTime, nullable=True),
    Column("looks", Integer, nullable=False),
    # When its credit was last taken back, and when that turned out to be a mistake or was made good.
    Column("reversed_at", UtcDateTime, nullable=True),
    Column("restored_at", UtcDateTime, nullable=True),
    Index("uq_payments_network_payer_nonce", "network", "payer", "nonce", unique=True),
    Index(
        "uq_payments_payer_identifier",
        "payer",
        "identifier",
        unique=True,
        sqlite_where=text("identifier IS NOT NULL"),
        postgresql_where=text("identifier IS NOT NULL"),
    ),
    Index(None, "account", "created_at"),
    Index(
        None,
        "look_at",
        sqlite_where=text("look_at IS NOT NULL"),
        postgresql_where=text("look_at IS NOT NULL"),
    ),
)

chain_heads = Table(
    "chain_heads",
    metadata,
    # CAIP-2.
    Column("network", Text, primary_key=True),
    # The highest head that was seen, and when it was last shown.
    Column("height", BigInteger, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)
