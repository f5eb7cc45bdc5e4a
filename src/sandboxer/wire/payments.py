"""Payments over the API: what was paid, what is bought with it, and what is for sale."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from sandboxer.wire.keys import NewKey
from sandboxer.wire.sandboxes import Sandbox
from sandboxer.wire.words import MAX_SATS, Answer, Request

PaymentId = Annotated[
    str, Field(pattern=r"^pay_[0-9a-hjkmnp-tv-z]{26}$", examples=["pay_01h5n3c8r2k7m4q9s6t1v0w8xy"])
]
PaymentStateName = Literal[
    "queued",
    "broadcasting",
    "settlement_pending",
    "doubted",
    "mempool",
    "confirmed",
    "failed",
    "replaced",
    "not_found",
]


class Payment(Answer):
    id: PaymentId
    state: PaymentStateName
    reason: Annotated[str, Field(description="Why it is in this state.", examples=["confirmed"])]
    purpose: Literal["create", "extend", "topup", "key"]
    network: Annotated[str, Field(description="CAIP-2.", examples=["eip155:8453"])]
    scheme: str
    asset: str
    amount: Annotated[str, Field(description="In the asset's smallest unit.", examples=["1000000"])]
    sats: Annotated[int, Field(description="What it is worth here.")]
    payer: str
    transaction: Annotated[str | None, Field(description="Its id on the chain, once known.")] = None
    sandbox_id: str | None = None
    created_at: datetime
    updated_at: datetime


class PaymentPage(Answer):
    payments: list[Payment]
    next_cursor: str | None = None


class TopUp(Request):
    sats: Annotated[int, Field(ge=1, le=MAX_SATS, description="How much credit to buy.", examples=[10_000])]
    account: Annotated[
        str | None,
        Field(
            pattern=r"^pub_[0-9a-hjkmnp-tv-z]{26}$",
            description="Whom to pay for, by public id; one's own account otherwise.",
        ),
    ] = None


class Bought(Answer):
    """What came of a payment. `key` is shown once, to a wallet whose account had none."""

    payment: Payment
    account: Annotated[str, Field(description="Public id of the account that was paid for.")]
    key: NewKey | None = None


class BuyKey(Request):
    tier: Annotated[int, Field(ge=1, le=32, examples=[1])]
    months: Annotated[int, Field(ge=1, le=24, examples=[1])]


class BoughtKey(Bought):
    tier: int | None = None
    entitled_until: datetime | None = None


class PaidSandbox(Sandbox):
    """A sandbox, and what paid for it if a payment came with the request."""

    payment: Payment | None = None
    key: Annotated[NewKey | None, Field(description="Shown once, to a wallet whose account had no key.")] = (
        None
    )


class Good(Answer):
    """Something for sale, as the bazaar extension of x402 lists it."""

    resource: str
    type: Literal["http"]
    x402Version: Literal[2]
    operation: str
    accepts: list[dict[str, Any]]
    extensions: dict[str, Any]
    mimeType: str | None = None
    serviceName: str | None = None
    tags: list[str] = Field(default_factory=list)


class Goods(Answer):
    x402Version: Literal[2] = 2
    items: list[Good]


class WellKnown(Answer):
    """What there is to find for who knows x402 and nothing else."""

    version: Literal[1] = 1
    x402Version: Literal[2] = 2
    resources: list[str]
    networks: list[str]
    pricing: str
    discovery: str
    document: str
