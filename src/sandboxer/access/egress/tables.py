"""Egress rules of sandboxes and accounts, and each sandbox's way out."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Table, Text

from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata

policies = Table(
    "egress_policies",
    metadata,
    # The id of a sandbox, or the name of an account for what holds in all of its own.
    Column("subject", Text, primary_key=True),
    Column("account", Text, nullable=False),
    Column("policy", JsonValue, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
)
outlets = Table(
    "egress_outlets",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("account", Text, nullable=False),
    Column("certificate", LargeBinary, nullable=False),
    Column("sealed_key", LargeBinary, nullable=False),
    # Bytes outwards and back; of those outwards, how many are paid for, in how many charges.
    Column("sent", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("charged", BigInteger, nullable=False),
    Column("charges", Integer, nullable=False),
    Column("denials", JsonValue, nullable=False),
)
