"""Cards and redemptions as values, and what an operator decides about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.gift_cards.states import CardState, RedemptionState

KIND = "gift_card"


class Source(StrEnum):
    """Who paid for a card."""

    INVOICE = "invoice"
    SATS = "sats"
    OPERATOR = "operator"


class Kind(StrEnum):
    """What a redemption buys."""

    TIER = "tier"
    SATS = "sats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Whom to ask before anything is redeemed. At least one of the two."""

    email: str | None = None
    webhook: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    # 130 random bits: who knows it may see how the card stands, and nothing else.
    id: str
    state: CardState
    source: Source
    # What it was bought for.
    cents: int
    # The bought amount that had been redeemed when the chain took the payment back.
    written_off: int
    # Keyed hash of the four words; None until they were shown.
    lookup: str | None = field(repr=False)
    # SHA-256 of what proves the buyer.
    claim_hash: str = field(repr=False)
    # The buyer's account, if he was signed in.
    account: str | None
    invoice: str | None
    approval: Approval | None
    # Sealed; signs the messages that ask for approval.
    approval_secret: bytes | None = field(repr=False)
    reason: str
    created_at: datetime
    updated_at: datetime
    paid_at: datetime | None
    shown_at: datetime | None
    revoked_at: datetime | None

    @property
    def ledger_id(self) -> str:
        return f"gift:{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redemption:
    # Unguessable: who knows it may follow it.
    id: str
    card: str
    # Chosen by who redeems: the same one is the same redemption.
    request_id: str
    # What was asked for, hashed: the same request id must ask for the same.
    fingerprint: str
    state: RedemptionState
    kind: Kind
    tier: int | None
    months: int | None
    cents: int
    # What it gave; None until granted, or for a tier.
    sats: int | None
    # Dollars for one BTC, as locked.
    rate: str | None
    account: str
    is_new_account: bool
    claim_hash: str | None = field(repr=False)
    public_key: str | None
    entitled_until: datetime | None
    reason: str
    created_at: datetime
    updated_at: datetime
    # Until when it may be approved.
    expires_at: datetime | None

    @property
    def hold_id(self) -> str:
        return f"gift:{self.card}:{self.id}:hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class GiftPolicy:
    """What an operator decides about gift cards."""

    min_cents: int = 700
    max_cents: int = 100_000
    # Whether accounts may buy them from their sats.
    for_sats: bool = True
    # Of a refund to a coin address, so much is kept.
    restocking_percent: int = 9
    # Wrong codes a minute, of everybody together; from half of it on, each attempt costs work.
    attempts_per_minute: int = 120
    # Leading zero bits of the work at half the budget, and near its end.
    work_bits: int = 16
    work_bits_most: int = 22
    approve_within: timedelta = timedelta(days=3)
    # At once, and in a day: nobody floods the one who approves.
    pending_per_card: int = 5
    asked_per_day: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.min_cents <= self.max_cents:
            raise InvalidRequest(field="gift_cards", why="min_cents from 1 to max_cents")
        if not 0 <= self.restocking_percent <= 100 or self.attempts_per_minute < 2:
            raise InvalidRequest(field="gift_cards", why="percent from 0 to 100, at least 2 attempts")
        if not 0 <= self.work_bits <= self.work_bits_most <= 32:
            raise InvalidRequest(field="gift_cards", why="work_bits from 0 to work_bits_most, at most 32")


POLICY = GiftPolicy()
