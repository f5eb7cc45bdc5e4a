"""The tables of payments, each recorded before anything is broadcast, and of the heads of chains.

The tables of invoices. Amounts of chains are text: 64 bits do not hold what DOGE and XMR can count to.

`invoice_steps` only ever grows and tells an invoice's whole story. An output belongs to one invoice for ever,
because no address is given twice.

The tables of gift cards. What is on a card is a ledger account in US cents; no column says it. The words are
nowhere: `lookup` is their hash under a key that the database does not hold.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    Table,
    Text,
    select,
    tuple_,
)

from sandboxer.kernel.errors import or_not_found
from sandboxer.store.metadata import (
    JsonValue,
    RowId,
    UtcDateTime,
    index_of,
    metadata,
    nullable,
    required,
)

payments = Table(
    "payments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    # Why it is over, in the words of the chain or relay.
    Column("reason", Text, nullable=False),
    # What the payer must not be able to use twice: CAIP-2 network, address, the chain's own nonce.
    *required(Text, "network", "payer", "nonce"),
    # SHA-256 of what was presented, and the payer's own name for it (the `payment-identifier` extension).
    Column("payload_hash", Text, nullable=False),
    Column("identifier", Text, nullable=True),
    *required(Text, "scheme", "asset"),
    # Smallest units as text: 18 decimals do not fit 64 bits.
    Column("amount", Text, nullable=False),
    Column("sats", BigInteger, nullable=False),
    # Who is credited, and what for: create, extend, topup, key.
    *required(Text, "account", "purpose"),
    Column("details", JsonValue, nullable=False),
    # To settle it again after a crash or a reorganisation; bound to our address, so worth nothing to others.
    *nullable(JsonValue, "payload", "requirements"),
    *nullable(Text, "txid", "block"),
    # The height of that block; NULL: not known (older records), or not in one.
    Column("height", BigInteger, nullable=True),
    # After this the authorization is worthless.
    Column("valid_until", UtcDateTime, nullable=True),
    *required(UtcDateTime, "created_at", "updated_at"),
    # When the reconciler looks again; NULL: no need.
    Column("look_at", UtcDateTime, nullable=True),
    Column("looks", Integer, nullable=False),
    # When its credit was last taken back, and when that turned out to be a mistake or was made good.
    *nullable(UtcDateTime, "reversed_at", "restored_at"),
    Index("uq_payments_network_payer_nonce", "network", "payer", "nonce", unique=True),
    index_of(
        "uq_payments_payer_identifier", "payer", "identifier", where="identifier IS NOT NULL", unique=True
    ),
    Index(None, "account", "created_at"),
    index_of(None, "look_at", where="look_at IS NOT NULL"),
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

# Per chain: the next index an address is derived from, how high it was, and when we last saw it.
invoice_chains = Table(
    "invoice_chains",
    metadata,
    Column("chain", Text, primary_key=True),
    *required(BigInteger, "next_index", "tip"),
    Column("looked_at", UtcDateTime, nullable=True),
)

invoices = Table(
    "invoices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    *nullable(Integer, "tier", "months"),
    Column("cents", BigInteger, nullable=True),
    Column("reference", Text, nullable=True),
    *required(Text, "asset", "atomic"),
    Column("sats", BigInteger, nullable=False),
    # The rates that were locked, as they were said; NULL where none was needed.
    *nullable(Text, "usd", "btc_usd"),
    Column("rate_sources", JsonValue, nullable=False),
    *required(Text, "state", "address"),
    Column("address_index", BigInteger, nullable=False),
    Column("account", Text, nullable=False),
    Column("is_new_account", Boolean, nullable=False),
    *nullable(Text, "claim_hash", "public_key", "refund_address"),
    Column("confirmations", Integer, nullable=False),
    # Who asked for it, as limits count: a network address, never shown.
    Column("asked_by", Text, nullable=False),
    # The network around that address; NULL for an account with funds, which is counted by itself.
    Column("asked_near", Text, nullable=True),
    *required(UtcDateTime, "created_at", "expires_at", "confirm_by"),
    Column("deliveries", Integer, nullable=False),
    Column("is_delivered", Boolean, nullable=False),
    Column("granted", JsonValue, nullable=False),
    Column("watch_until", UtcDateTime, nullable=True),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("steps", Integer, nullable=False),
    Index("uq_invoices_asset_address", "asset", "address", unique=True),
    Index("uq_invoices_asset_address_index", "asset", "address_index", unique=True),
    index_of(None, "asset", "watch_until", where="watch_until IS NOT NULL"),
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
    *required(Text, "invoice", "amount"),
    Column("depth", Integer, nullable=False),
    Column("block", Text, nullable=True),
    Column("height", BigInteger, nullable=True),
    *required(Boolean, "is_there", "is_unlocked"),
    Column("missed", Integer, nullable=False),
    Column("is_in_time", Boolean, nullable=False),
    Column("first_seen_at", UtcDateTime, nullable=False),
    Column("settled", Text, nullable=False),
    *required(BigInteger, "sale_sats", "bucket_sats"),
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
    *required(Text, "state", "signal"),
    # What was done in the same transaction, and what was seen.
    Column("data", JsonValue, nullable=False),
    Index("uq_invoice_steps_invoice_number", "invoice", "number", unique=True),
    sqlite_autoincrement=True,
)

refunds = Table(
    "refunds",
    metadata,
    Column("id", Text, primary_key=True),
    *required(
        Text, "invoice", "chain", "txid", "output", "received", "amount", "kept", "address", "state", "reason"
    ),
    Column("sent_txid", Text, nullable=True),
    *required(UtcDateTime, "created_at", "updated_at"),
    # Signed by the hot wallet and written down before it goes out; hexadecimal.
    *nullable(Text, "prepared_txid", "prepared", "fee"),
    # Why it is not on its way yet.
    Column("held", Text, nullable=True),
    Index(None, "state", "created_at"),
    Index(None, "invoice"),
)

gift_cards = Table(
    "gift_cards",
    metadata,
    Column("id", Text, primary_key=True),
    *required(Text, "state", "source"),
    *required(BigInteger, "cents", "written_off"),
    Column("lookup", Text, nullable=True),
    Column("claim_hash", Text, nullable=False),
    *nullable(Text, "account", "invoice"),
    # Whom to ask: {"email": …, "webhook": …}; empty: nobody.
    Column("approval", JsonValue, nullable=False),
    Column("approval_secret", LargeBinary, nullable=True),
    Column("reason", Text, nullable=False),
    *required(UtcDateTime, "created_at", "updated_at"),
    *nullable(UtcDateTime, "paid_at", "shown_at", "revoked_at"),
    Index("uq_gift_cards_lookup", "lookup", unique=True),
    Index(None, "created_at", "id"),
)
gift_redemptions = Table(
    "gift_redemptions",
    metadata,
    Column("id", Text, primary_key=True),
    *required(Text, "card", "request_id", "fingerprint", "state", "kind"),
    *nullable(Integer, "tier", "months"),
    Column("cents", BigInteger, nullable=False),
    Column("sats", BigInteger, nullable=True),
    Column("rate", Text, nullable=True),
    Column("account", Text, nullable=False),
    Column("is_new_account", Boolean, nullable=False),
    *nullable(Text, "claim_hash", "public_key"),
    Column("entitled_until", UtcDateTime, nullable=True),
    Column("reason", Text, nullable=False),
    *required(UtcDateTime, "created_at", "updated_at"),
    Column("expires_at", UtcDateTime, nullable=True),
    Index("uq_gift_redemptions_card_request_id", "card", "request_id", unique=True),
    index_of(None, "expires_at", where="state = 'pending_approval'"),
)

# Mail still to be sent. The text is made when it is sent: the link that approves is not kept.
gift_mails = Table(
    "gift_mails",
    metadata,
    Column("redemption", Text, primary_key=True),
    *required(Text, "address", "state"),
    Column("tries", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime, nullable=True),
    index_of(None, "due_at", where="due_at IS NOT NULL"),
)


class Listed(Protocol):
    """A record in a list that goes by the moment at which it was made."""

    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


def after_last(table: Table, last: Listed, *, is_newest_first: bool = True) -> ColumnElement[bool]:
    """Return the condition for the rows that follow the last one seen."""
    place, seen = tuple_(table.c.created_at, table.c.id), (last.created_at, last.id)
    return place < seen if is_newest_first else place > seen


def load_row(conn: Connection, table: Table, id: str, *, what: str, lock: bool = False) -> Row[Any]:
    """Return the row of this id; with `lock`, nobody else changes it before the transaction ends. Raises
    NotFound.
    """
    query = select(table).where(table.c.id == id)
    return or_not_found(
        conn.execute(query.with_for_update() if lock else query).one_or_none(), what=what, id=id
    )
