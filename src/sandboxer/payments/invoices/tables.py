"""The tables of invoices. Amounts of chains are text: 64 bits do not hold what DOGE and XMR can count to.

`invoice_steps` only ever grows and tells an invoice's whole story. An output belongs to one invoice for ever,
because no address is given twice.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text, text

from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime, metadata

# Per chain: the next index an address is derived from, how high it was, and when we last saw it.
invoice_chains = Table(
    "invoice_chains",
    metadata,
    Column("chain", Text, primary_key=True),
    Column("next_index", BigInteger, nullable=False),
    Column("tip", BigInteger, nullable=False),
    Column("looked_at", UtcDateTime, nullable=True),
)

invoices = Table(
    "invoices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("tier", Integer, nullable=True),
    Column("months", Integer, nullable=True),
    Column("cents", BigInteger, nullable=True),
    Column("reference", Text, nullable=True),
    Column("asset", Text, nullable=False),
    Column("atomic", Text, nullable=False),
    Column("sats", BigInteger, nullable=False),
    # The rates that were locked, as they were said; NULL where none was needed.
    Column("usd", Text, nullable=True),
    Column("btc_usd", Text, nullable=True),
    Column("rate_sources", JsonValue, nullable=False),
    Column("state", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("address_index", BigInteger, nullable=False),
    Column("account", Text, nullable=False),
    Column("is_new_account", Boolean, nullable=False),
    Column("claim_hash", Text, nullable=True),
    Column("public_key", Text, nullable=True),
    Column("refund_address", Text, nullable=True),
    Column("confirmations", Integer, nullable=False),
    # Who asked for it, as limits count: a network address, never shown.
    Column("asked_by", Text, nullable=False),
    # The network around that address; NULL for an account with funds, which is counted by itself.
    Column("asked_near", Text, nullable=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("confirm_by", UtcDateTime, nullable=False),
    Column("deliveries", Integer, nullable=False),
    Column("is_delivered", Boolean, nullable=False),
    Column("granted", JsonValue, nullable=False),
    Column("watch_until", UtcDateTime, nullable=True),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("steps", Integer, nullable=False),
    Index("uq_invoices_asset_address", "asset", "address", unique=True),
    Index("uq_invoices_asset_address_index", "asset", "address_index", unique=True),
    Index(
        None,
        "asset",
        "watch_until",
        sqlite_where=text("watch_until IS NOT NULL"),
        postgresql_where=text("watch_until IS NOT NULL"),
    ),
    Index(None, "asked_by", "state"),
    Index(None, "asked_near", "state"),
    Index(None, "state", "asked_near"),
    Index(None, "created_at", "id"),
    Index(None, "account"),
)

invoice_outputs = Table(
    "invoice_outputs",
    metadata,
    Column("chain", Text, primary_key=True),
    Column("txid", Text, primary_key=True),
    Column("output", Text, primary_key=True),
    Column("invoice", Text, nullable=False),
    Column("amount", Text, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("block", Text, nullable=True),
    Column("height", BigInteger, nullable=True),
    Column("is_there", Boolean, nullable=False),
    Column("is_unlocked", Boolean, nullable=False),
    Column("missed", Integer, nullable=False),
    Column("is_in_time", Boolean, nullable=False),
    Column("first_seen_at", UtcDateTime, nullable=False),
    Column("settled", Text, nullable=False),
    Column("sale_sats", BigInteger, nullable=False),
    Column("bucket_sats", BigInteger, nullable=False),
    Column("is_for_price", Boolean, nullable=False),
    Column("round", Integer, nullable=False),
    Index(None, "invoice"),
)

invoice_steps = Table(
    "invoice_steps",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    Column("invoice", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("state", Text, nullable=False),
    Column("signal", Text, nullable=False),
    # What was done in the same transaction, and what was seen.
    Column("data", JsonValue, nullable=False),
    Index("uq_invoice_steps_invoice_number", "invoice", "number", unique=True),
    sqlite_autoincrement=True,
)

refunds = Table(
    "refunds",
    metadata,
    Column("id", Text, primary_key=True),
    Column("invoice", Text, nullable=False),
    Column("chain", Text, nullable=False),
    Column("txid", Text, nullable=False),
    Column("output", Text, nullable=False),
    Column("received", Text, nullable=False),
    Column("amount", Text, nullable=False),
    Column("kept", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("sent_txid", Text, nullable=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # Signed by the hot wallet and written down before it goes out; hexadecimal.
    Column("prepared_txid", Text, nullable=True),
    Column("prepared", Text, nullable=True),
    Column("fee", Text, nullable=True),
    # Why it is not on its way yet.
    Column("held", Text, nullable=True),
    Index(None, "state", "created_at"),
    Index(None, "invoice"),
)
