"""Cards and redemptions as values, their two lifecycle tables, and the operator's settings for them.

Every change of state goes through `next_card_state` or `next_redemption_state`. Settings are read strictly:
an unknown name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.payments.invoices.records import Kind, read_terms
from sandboxer.store.steps import Lifecycle

KIND = "gift_card"


class Source(StrEnum):
    """Who paid for a card."""

    INVOICE = "invoice"
    SATS = "sats"
    OPERATOR = "operator"


@value_class
class Approval:
    """Who is asked before anything is redeemed: an address, a webhook, or both."""

    email: str | None = None
    webhook: str | None = None


@value_class
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


@value_class
class Redemption:
    # Unguessable: who knows it may follow it.
    id: str
    card: str
    # Chosen by who redeems: the same one is the same redemption.
    request_id: str
    # What was asked for, hashed: the same request id must ask for the same.
    fingerprint: str
    state: RedemptionState
    # What it buys: a tier or sats.
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


@value_class
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


class CardState(StrEnum):
    # Its invoice is not paid yet.
    AWAITING = "awaiting_payment"
    ACTIVE = "active"
    # Nothing is left on it, and nothing waits for approval (what waits is still on it).
    SPENT = "spent"
    # Nothing can be redeemed any more; what is left can be refunded.
    REVOKED = "revoked"
    REFUNDED = "refunded"
    # The chain took back the payment it was bought with.
    REVERSED = "reversed"


class CardSignal(StrEnum):
    PAID = "paid"
    # Paid again after the chain took it back, though it had been revoked meanwhile.
    PAID_REVOKED = "paid_revoked"
    EMPTIED = "emptied"
    REVOKE = "revoke"
    REFUND = "refund"
    TAKEN_BACK = "taken_back"


class RedemptionState(StrEnum):
    PENDING_APPROVAL = "pending_approval"
    GRANTED = "granted"
    DENIED = "denied"
    # Nobody answered in time.
    EXPIRED = "expired"
    # The card ended while it waited.
    CANCELLED = "cancelled"


class RedemptionSignal(StrEnum):
    APPROVE = "approve"
    DENY = "deny"
    TIME_OVER = "time_over"
    CARD_ENDED = "card_ended"


C, S = CardState, CardSignal
R, E = RedemptionState, RedemptionSignal
CARDS: Mapping[tuple[CardState, CardSignal], CardState] = {
    (C.AWAITING, S.PAID): C.ACTIVE,
    (C.ACTIVE, S.EMPTIED): C.SPENT,
    (C.ACTIVE, S.REVOKE): C.REVOKED,
    (C.ACTIVE, S.REFUND): C.REFUNDED,
    (C.REVOKED, S.REFUND): C.REFUNDED,
    **{(state, S.TAKEN_BACK): C.REVERSED for state in (C.ACTIVE, C.SPENT, C.REVOKED, C.REFUNDED)},
    (C.REVERSED, S.PAID): C.ACTIVE,
    (C.REVERSED, S.PAID_REVOKED): C.REVOKED,
}
REDEMPTIONS: Mapping[tuple[RedemptionState, RedemptionSignal], RedemptionState] = {
    (R.PENDING_APPROVAL, E.APPROVE): R.GRANTED,
    (R.PENDING_APPROVAL, E.DENY): R.DENIED,
    (R.PENDING_APPROVAL, E.TIME_OVER): R.EXPIRED,
    (R.PENDING_APPROVAL, E.CARD_ENDED): R.CANCELLED,
}


@value_class
class MailServer:
    host: str
    port: int
    sender: str
    # none, starttls or tls.
    tls: str = "starttls"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    # Of a private authority that signed its certificate.
    ca_file: str | None = None
    timeout_s: float = 20.0


next_card_state = Lifecycle(CARDS).next_state
next_redemption_state = Lifecycle(REDEMPTIONS).next_state


def read_gift_policy(given: Mapping[str, Any]) -> GiftPolicy:
    """Terms that are not named keep their default."""
    return GiftPolicy(**read_terms(GiftPolicy, given, "gift_cards"))
