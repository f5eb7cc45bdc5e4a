"""The tables of wallets: who they belong to, what they were asked to sign, the sessions they opened.

Sealed secrets of the package itself (the key of session tokens) lie here too. API keys have theirs in
`keys.py`.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Table, Text

from sandboxer.store.metadata import UtcDateTime, metadata, required

wallets = Table(
    "wallets",
    metadata,
    # CAIP-10, canonical.
    Column("address", Text, primary_key=True),
    Column("account", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    Index(None, "account"),
)

# What was handed out to be signed and has not come back. A row is taken once, by whoever deletes it. What
# strangers were handed out is not here until it is used (purpose `used`).
challenges = Table(
    "challenges",
    metadata,
    Column("nonce", Text, primary_key=True),
    # What the signature will be good for: session, link, siwx, genesis, second-proof.
    Column("purpose", Text, nullable=False),
    # The account that asked; empty for strangers.
    Column("account", Text, nullable=False),
    # What else it is bound to: an action and a resource, a message.
    Column("bound_to", Text, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "purpose", "account"),
    Index(None, "expires_at"),
)

wallet_sessions = Table(
    "wallet_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    *required(Text, "address", "account"),
    *required(UtcDateTime, "created_at", "expires_at"),
    Column("revoked_at", UtcDateTime),
    # Of the address that opened it; empty where there was none.
    Column("network", Text, nullable=False, server_default=""),
    Index(None, "address"),
    Index(None, "network"),
    Index(None, "expires_at"),
)

identity_secrets = Table(
    "identity_secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)
