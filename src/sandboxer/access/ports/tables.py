"""Links to ports inside sandboxes."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, Table, Text

from sandboxer.store.metadata import UtcDateTime, metadata

previews = Table(
    "previews",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sandbox_id", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("is_public", Boolean, nullable=False),
    Column("is_one_time", Boolean, nullable=False),
    Column("wakes", Boolean, nullable=False),
    Column("hold_s", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=True),
    Column("used_at", UtcDateTime, nullable=True),
    Column("revoked_at", UtcDateTime, nullable=True),
    Index(None, "sandbox_id", "created_at"),
)
