"""Invoices, refunds and rates. Whoever knows an invoice's id may see it; nobody needs an account to ask."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.accounts import Sats
from sandboxer.wire.words import Answer, Moment, Request, id_field

Coin = Annotated[
    Literal["BTC", "LTC", "DOGE", "XMR"], Field(description="What is paid in; the platform may take fewer.")
]
InvoiceId = Annotated[str, id_field("inv", "Id of an invoice; not to be guessed.", max_length=None)]
RefundId = Annotated[str, Field(pattern=r"^rfd_[0-9a-f]{32}$", description="Id of a refund.")]
TxId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="Id of a transaction on its chain.")]
Atomic = Annotated[str, Field(pattern=r"^[0-9]{1,40}$", description="In the coin's smallest unit, as text.")]
InvoiceState = Literal[
    "awaiting",
    "double_spent",
    "dust",
    "partial",
    "seen",
    "confirming",
    "paid",
    "over",
    "reorged",
    "expired",
    "underpaid",
    "late",
    "awaiting_rate",
    "credited",
    "refund_due",
    "refunded",
]
RefundWord = Literal["queued", "sending", "sent", "confirmed", "withdrawn"]


class AskInvoice(Request):
    """Either `tier` and `months`, or `sats`. Without `account` a new one is made, with a key."""

    currency: Coin
    tier: Annotated[int | None, Field(ge=1, le=32)] = None
    months: Annotated[int | None, Field(ge=1, le=120)] = None
    sats: Sats | None = None
    account: Annotated[
        str | None,
        Field(pattern=r"^pub_[0-9a-z]{26}$", description="Public id of the account it is for."),
    ] = None
    refund_address: Annotated[
        str | None,
        Field(
            min_length=10,
            max_length=120,
            pattern=r"^[A-Za-z0-9]+$",
            description="Where late or too small payments go back, less 9 %. Without it they become sats.",
        ),
    ] = None


class Payment(Answer):
    """One output that reached the invoice's address."""

    id: str
    txid: str
    amount: str
    atomic: Atomic
    confirmations: int
    is_there: Annotated[bool, Field(description="False: another transaction took its place, or it vanished.")]
    is_in_time: bool
    settled: Annotated[Literal["open", "credited", "refund", "kept"], Field(description="What became of it.")]
    sats: Annotated[int, Field(description="What it was credited as, sale included.")]


class InvoiceStep(Answer):
    at: Moment
    state: InvoiceState
    signal: str


class Refund(Answer):
    id: str
    invoice: str
    currency: str
    state: RefundWord
    reason: str
    txid: Annotated[str, Field(description="The payment it returns; it spends that very output.")]
    output: str
    received_atomic: Atomic
    amount: str
    amount_atomic: Atomic
    kept_atomic: Annotated[
        str, Field(description="What is not sent back; the network's fee is paid from it.")
    ]
    fee_atomic: Annotated[
        str | None,
        Field(description="The network's fee, once the hot wallet has signed; part of what is kept."),
    ] = None
    address: str
    sent_txid: str | None = None
    held: Annotated[
        str | None,
        Field(description="Why the hot wallet has not sent it: the operator may, spending that very output."),
    ] = None
    created_at: Moment
    updated_at: Moment


class Invoice(Answer):
    id: str
    state: InvoiceState
    is_settled: Annotated[bool, Field(description="Nothing more is expected; no need to ask again.")]
    kind: Annotated[str, Field(description="What is bought: tier, sats, or goods of another room.")]
    tier: int | None = None
    months: int | None = None
    usd_cents: int | None = None
    sats: Annotated[int, Field(description="The price in sats.")]
    currency: str
    amount: Annotated[str, Field(description="Exactly so much of the coin.", examples=["4.52"])]
    atomic: Atomic
    usd_rate: Annotated[str | None, Field(description="Dollars for one coin, locked.")] = None
    btc_usd_rate: str | None = None
    address: str
    payment_uri: Annotated[str, Field(description="What a wallet scans; GET …/qr.svg draws it.")]
    refund_address: str | None = None
    confirmations_needed: int
    confirmations: Annotated[int, Field(description="Of the least deep output that counts.")]
    received: str
    payments: list[Payment]
    refunds: list[Refund]
    history: list[InvoiceStep]
    public_key: Annotated[
        str | None, Field(description="The key of a new account; fetch its secret with the claim, once.")
    ] = None
    created_at: Moment
    expires_at: Moment
    poll_after_s: Annotated[int, Field(description="Ask again after so many seconds.")] = 14


class NewInvoice(Invoice):
    claim: Annotated[
        str | None,
        Field(description="Shown here and never again; POST /v1/keys/{public_key}/reveal takes it."),
    ] = None


class InvoiceList(Answer):
    invoices: list[Invoice]
    next_cursor: Annotated[str | None, Field(description="None: no more.")] = None


class RefundList(Answer):
    refunds: list[Refund]
    next_cursor: str | None = None


class SentRefund(Request):
    txid: TxId


class RateLine(Answer):
    asset: str
    usd: Annotated[str | None, Field(description="US dollars for one whole unit; null: no rate now.")]
    at: Moment | None = None
    sources: list[str]
    why: Annotated[str | None, Field(description="Why there is none.")] = None
    off: Annotated[str | None, Field(description="Why no invoice in it is given out now.")] = None


class RateList(Answer):
    rates: list[RateLine]
