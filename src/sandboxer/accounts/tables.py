"""The tables of the accounts package. `audit_log` only ever grows; money itself lies in the money package."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata

accounts = Table(
    "accounts",
    metadata,
    Column("id", Text, primary_key=True),
    # The id that others may know: with it they can pay for the account, but not call in its name.
    Column("public_id", Text, nullable=False, unique=True),
    # owner, customer or delegated.
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("status_reason", Text, nullable=False),
    Column("tier", Integer),
    Column("entitled_until", UtcDateTime),
    Column("caps", JsonValue, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("status_since", UtcDateTime, nullable=False),
    Index(None, "created_at", "id"),
)

# A child key and the account it acts for. Each child has an account and a bucket of its own, so the walls
# between tenants are the walls between parent and child.
delegated_keys = Table(
    "delegated_keys",
    metadata,
    Column("account", Text, primary_key=True),
    Column("public_key", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("parent", Text, nullable=False),
    Column("root", Text, nullable=False),
    # `root/…/parent/account`: the ancestry, for finding a subtree without walking it.
    Column("path", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    # The key that cut it: when that one is revoked, so is this.
    Column("cut_by", Text, nullable=False),
    Column("scopes", JsonValue, nullable=False),
    # How many generations may still follow; how many sandboxes at once, its own and its children's.
    Column("depth", Integer, nullable=False),
    Column("slots", Integer),
    Column("expires_at", UtcDateTime),
    # active, ending, ended.
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # Written once, at the end: what flowed back up, and what outsiders had paid and stayed.
    Column("returned_sats", BigInteger),
    Column("kept_sats", BigInteger),
    Index(None, "parent", "state"),
    Index(None, "root"),
    Index(None, "cut_by"),
    Index(None, "state", "expires_at"),
)

audit_log = Table(
    "audit_log",
    metadata,
    # Counted by the chain itself, without gaps.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", UtcDateTime, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("data", JsonValue, nullable=False),
    # No two rows may follow the same one: even a wrong program cannot fork the chain.
    Column("previous", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False),
    Index(None, "subject", "seq"),
)

# One row: the newest link, locked by whoever appends, and the first witness against a cut tail.
audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)
