"""Cards and redemptions as values, their two lifecycle tables, and the operator's settings for them.

Every change of state goes through `next_card_state` or `next_redemption_state`. Settings are read strictly:
an unknown name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest

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
    """Who is asked before anything is redeemed: an address, a webhook, or both."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def next_card_state(state: CardState, signal: CardSignal) -> CardState:
    try:
        return CARDS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None


def next_redemption_state(state: RedemptionState, signal: RedemptionSignal) -> RedemptionState:
    try:
        return REDEMPTIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None


def render_mermaid() -> str:
    """Both tables as one diagram for the documents."""
    lines = ["stateDiagram-v2", f"    [*] --> {C.AWAITING}: by invoice", f"    [*] --> {C.ACTIVE}: at once"]
    lines += [f"    {state} --> {end}: {signal}" for (state, signal), end in CARDS.items()]
    lines += [f"    [*] --> {R.GRANTED}: redeemed", f"    [*] --> {R.PENDING_APPROVAL}: needs approval"]
    lines += [f"    {state} --> {end}: {signal}" for (state, signal), end in REDEMPTIONS.items()]
    return "\n".join(lines) + "\n"


def read_gift_policy(given: Mapping[str, Any]) -> GiftPolicy:
    """Terms that are not named keep their default."""
    known = {one.name for one in fields(GiftPolicy)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidRequest(field=f"gift_cards.{name}", why=f"known are {', '.join(sorted(known))}")
        if name == "approve_within":
            value = parse_duration(str(value), field=f"gift_cards.{name}")
        elif name == "for_sats":
            if not isinstance(value, bool):
                raise InvalidRequest(field=f"gift_cards.{name}", why="it must be true or false")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidRequest(field=f"gift_cards.{name}", why="it must be a whole number, not below zero")
        values[name] = value
    return GiftPolicy(**values)
