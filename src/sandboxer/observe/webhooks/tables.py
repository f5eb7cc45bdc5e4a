"""Who is told (`webhook_endpoints`), what is told (`webhook_deliveries`), and how each try went."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, Table, Text, UniqueConstraint

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime, index_of, metadata, nullable, required

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", Text, nullable=False),
    # Empty for the row that holds an account's secret for one-shot messages.
    Column("url", Text, nullable=False),
    Column("kinds", JsonValue, nullable=False),
    # The operator's: hears of every account.
    *required(Boolean, "hears_all", "enabled"),
    Column("disabled_reason", Text, nullable=False),
    # Sealed; the old one signs beside the new one until its time is over.
    Column("secret", LargeBinary, nullable=False),
    Column("old_secret", LargeBinary),
    Column("old_secret_until", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "account", "created_at"),
    index_of("ix_webhook_endpoints_of_all", "id", where="hears_all"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    *required(Text, "endpoint", "account"),
    # Deliveries of one lane go one after the other; lanes do not wait for each other.
    *required(Text, "lane", "message", "kind", "body"),
    # Of a one-shot; others go where their endpoint says at the time.
    Column("url", Text),
    Column("secret", LargeBinary),
    Column("state", Text, nullable=False),
    # Since it was made or asked for again; the attempts of its whole life are in `webhook_attempts`.
    Column("tries", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # When to try next; none once it has ended.
    *nullable(UtcDateTime, "due_at", "ended_at"),
    # The same message is put into the outbox once, however often the fan-out is repeated.
    UniqueConstraint("endpoint", "message"),
    index_of(None, "lane", "due_at", "seq", where="due_at IS NOT NULL"),
    Index(None, "endpoint", "seq"),
    Index(None, "ended_at"),
    sqlite_autoincrement=True,
)

webhook_attempts = Table(
    "webhook_attempts",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    Column("delivery", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("took_ms", Integer, nullable=False),
    Column("status", Integer),
    *required(Text, "outcome", "reason"),
    Index(None, "delivery", "seq"),
    sqlite_autoincrement=True,
)

# How far each feed has been put into the outbox.
webhook_cursors = Table(
    "webhook_cursors",
    metadata,
    Column("feed", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
