"""Secrets of accounts, and what was injected into which sandbox. Values are sealed."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, LargeBinary, Table, Text

from sandboxer.store.metadata import UtcDateTime, metadata

secrets = Table(
    "secrets",
    metadata,
    Column("account", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

# Copies, so that a file inside and the environment always agree; a rotated secret is injected again.
sandbox_secrets = Table(
    "sandbox_secrets",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("in_env", Boolean, nullable=False),
    Column("in_file", Boolean, nullable=False),
    Column("injected_at", UtcDateTime, nullable=False),
)
