"""Gift cards: prepaid US cents behind four words. Nobody needs an account to buy or to redeem one."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.invoices import Coin, NewInvoice
from sandboxer.wire.words import Answer, Moment, Request, id_field

_ID = r"[0-9a-hjkmnp-tv-z]{26}"
CardId = Annotated[
    str, id_field("gft", "Id of a gift card; not to be guessed, and redeems nothing.", max_length=None)
]
RedemptionId = Annotated[str, id_field("rdm", "Id of a redemption; not to be guessed.", max_length=None)]
ApprovalToken = Annotated[
    str,
    Field(pattern=rf"^rdm_{_ID}\.[0-9]{{1,12}}\.[0-9a-f]{{64}}$", description="From the link that asks."),
]
Cents = Annotated[int, Field(ge=1, le=100_000_000, description="US cents.", examples=[5000])]
Code = Annotated[
    str,
    Field(
        min_length=7,
        max_length=200,
        description="The four words; case, spaces and hyphens do not matter.",
        examples=["abacus-violin-pebble-zoom"],
    ),
]
ClaimToken = Annotated[
    str, Field(min_length=8, max_length=100, description="What came with the card: it proves the buyer.")
]
PublicId = Annotated[str, Field(pattern=r"^pub_[0-9a-z]{26}$", description="Public id of an account.")]
CoinAddress = Annotated[str, Field(min_length=10, max_length=120, pattern=r"^[A-Za-z0-9]+$")]
CardWord = Literal["awaiting_payment", "active", "spent", "revoked", "refunded", "reversed"]
RedemptionWord = Literal["pending_approval", "granted", "denied", "expired", "cancelled"]


class AskApproval(Request):
    """Whom to ask before anything of the card is redeemed; at least one."""

    email: Annotated[str | None, Field(min_length=3, max_length=254, examples=["me@example.org"])] = None
    webhook: Annotated[
        str | None, Field(min_length=8, max_length=2048, description="Signed with the card's own secret.")
    ] = None


class BuyGiftCard(Request):
    """Paid by invoice (`currency`), from one's sats (`pay_with: sats`, signed), or given by the operator."""

    cents: Cents
    pay_with: Annotated[
        Literal["invoice", "sats", "operator"], Field(description="`operator`: free of charge, by the owner.")
    ] = "invoice"
    currency: Coin | None = None
    refund_address: Annotated[
        CoinAddress | None, Field(description="Where a refund goes, less restocking.")
    ] = None
    approval: AskApproval | None = None
    reason: Annotated[
        str, Field(max_length=500, pattern=r"^[^\x00]*$", description="Why; needed from an operator.")
    ] = ""


class Work(Request):
    """A solved puzzle of a 428 answer: SHA-256 of `challenge:solution` begins with so many zero bits."""

    challenge: Annotated[str, Field(max_length=200)]
    solution: Annotated[str, Field(max_length=100)]


class AskBalance(Request):
    code: Code
    work: Work | None = None


class Redeem(Request):
    """`tier` and `months`, or `cents` to be turned into sats; without either, all that is left is."""

    code: Code
    request_id: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_-]{16,100}$",
            description="Random, chosen by you: the same one redeems once and is answered again.",
            examples=["0b8f7c1e9a4d4c27b1c6"],
        ),
    ] = None
    tier: Annotated[int | None, Field(ge=1, le=32)] = None
    months: Annotated[int | None, Field(ge=1, le=120)] = None
    cents: Cents | None = None
    account: Annotated[
        PublicId | None,
        Field(description="Whom it is for; without it the caller, or if nobody signed, a new account."),
    ] = None
    work: Work | None = None


class Prove(Request):
    """By the claim, or by signing with the account that bought the card."""

    claim: ClaimToken | None = None


class ShowCode(Prove):
    again: Annotated[
        bool, Field(description="Make new words if some were shown before; the old ones end then.")
    ] = False


class Revoke(Prove):
    reason: Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")] = "asked"


class RefundCard(Prove):
    to: Annotated[
        Literal["sats", "address"],
        Field(description="An account's sats, or the coin it was paid with, less restocking."),
    ]
    account: PublicId | None = None
    address: CoinAddress | None = None


class GiftCard(Answer):
    id: str
    state: CardWord
    cents: Annotated[int, Field(description="What it was bought for.")]
    left_cents: Annotated[int, Field(description="What can be redeemed.")]
    held_cents: Annotated[int, Field(description="What waits for approval.")]
    source: Annotated[Literal["invoice", "sats", "operator"], Field(description="How it was paid.")]
    needs_approval: bool
    is_shown: Annotated[bool, Field(description="The code was shown.")]
    invoice: str | None = None
    created_at: Moment
    paid_at: Moment | None = None
    poll_after_s: Annotated[int, Field(description="Ask again after so many seconds.")] = 14


class NewGiftCard(GiftCard):
    claim: Annotated[str, Field(description="Proves the buyer; shown here and never again.")]
    code: Annotated[
        str | None, Field(description="The four words, if it is paid already; shown here and never again.")
    ] = None
    approval_secret: Annotated[
        str | None, Field(description="Signs the webhooks that ask for approval; shown once.")
    ] = None
    bill: Annotated[NewInvoice | None, Field(description="What to pay, if it is paid by invoice.")] = None


class ShownCode(Answer):
    id: str
    code: Annotated[str, Field(repr=False, description="The four words; kept nowhere.")]
    cents: int


class CardBalance(Answer):
    id: str
    cents: int
    left_cents: int
    needs_approval: bool


class Redemption(Answer):
    id: str
    state: RedemptionWord
    kind: Literal["tier", "sats"]
    tier: int | None = None
    months: int | None = None
    cents: Annotated[int, Field(description="What it takes from the card.")]
    sats: Annotated[int | None, Field(description="What it gave, once granted.")] = None
    btc_usd_rate: Annotated[str | None, Field(description="At which the cents became sats.")] = None
    left_cents: Annotated[int, Field(description="What can still be redeemed of the card.")]
    account: Annotated[str | None, Field(description="Public id of who gets it.")] = None
    public_key: Annotated[
        str | None, Field(description="The key of a new account; fetch its secret with the claim, once.")
    ] = None
    entitled_until: Moment | None = None
    reason: str
    created_at: Moment
    expires_at: Annotated[Moment | None, Field(description="Until when it may be approved.")] = None
    poll_after_s: int = 14


class NewRedemption(Redemption):
    request_id: str
    claim: Annotated[
        str | None,
        Field(description="For a new account; POST /v1/keys/{public_key}/reveal takes it, once."),
    ] = None


class RefundedCard(Answer):
    card: GiftCard
    to: Literal["sats", "address"]
    sats: Annotated[int | None, Field(description="What the account got.")] = None
    atomic: Annotated[str | None, Field(description="What is queued to go back, in the smallest unit.")] = (
        None
    )


class GiftCardList(Answer):
    cards: list[GiftCard]
    next_cursor: Annotated[str | None, Field(description="None: no more.")] = None


class GiftPricing(Answer):
    min_cents: int
    max_cents: int
    currencies: Annotated[list[str], Field(description="Coins that an invoice may be paid in.")]
    pays_with_sats: bool
    sats_per_dollar: Annotated[int | None, Field(description="Now, rounded down; null: no rate.")] = None
    restocking_percent: Annotated[int, Field(description="Kept of a refund to a coin address.")]
    approval_by: list[Literal["webhook", "email"]]
    words: int
    word_list: Annotated[int, Field(description="How many words there are to choose from.")]
    attempts_per_minute: Annotated[int, Field(description="Wrong codes, of everybody together.")]
    work_bits: Annotated[int, Field(description="Of the puzzle that an attempt needs now; 0: none.")]
    tiers: Annotated[str, Field(description="Where the prices of tiers are.")] = "/v1/pricing"
