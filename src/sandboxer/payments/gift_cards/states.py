"""The lives of a card and of a redemption as two tables. Every change of state goes through their doors."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


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
