"""What a relay says of a payment, and what each answer means for who pays and who sells.

States, transitions, reasons and categories are the relays' published ones; they are data here, so that a new
reason is one line, and an unknown one is treated as the relay's own fault rather than the payer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class PaymentState(StrEnum):
    REQUIRES_PAYMENT = "requires_payment"
    QUEUED = "queued"
    BROADCASTING = "broadcasting"
    MEMPOOL = "mempool"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    REPLACED = "replaced"
    NOT_FOUND = "not_found"


S = PaymentState
IN_FLIGHT = frozenset({S.QUEUED, S.BROADCASTING, S.MEMPOOL})
TERMINAL = frozenset({S.CONFIRMED, S.FAILED, S.REPLACED, S.NOT_FOUND})
# Some relays have words of their own; the published one says `broadcast` of what waits in the mempool.
SYNONYMS: Mapping[str, PaymentState] = {"submitted": S.QUEUED, "pending": S.MEMPOOL, "broadcast": S.MEMPOOL}

TRANSITIONS: Mapping[PaymentState, frozenset[PaymentState]] = {
    S.REQUIRES_PAYMENT: frozenset(),
    S.QUEUED: frozenset({S.QUEUED, S.BROADCASTING, S.FAILED}),
    S.BROADCASTING: frozenset({S.QUEUED, S.MEMPOOL, S.FAILED}),
    S.MEMPOOL: frozenset({S.MEMPOOL, S.CONFIRMED, S.FAILED, S.REPLACED}),
    S.CONFIRMED: frozenset(),
    S.FAILED: frozenset(),
    S.REPLACED: frozenset(),
    S.NOT_FOUND: frozenset(),
}


class Category(StrEnum):
    VALIDATION = "validation"
    SENDER = "sender"
    RELAY = "relay"
    SETTLEMENT = "settlement"
    REPLACEMENT = "replacement"
    IDENTITY = "identity"


class NextStep(StrEnum):
    REBUILD_AND_RESIGN = "rebuild_and_resign"
    RETRY_LATER = "retry_later"
    START_NEW_PAYMENT = "start_new_payment"
    FIX_AND_RESEND = "fix_and_resend"
    WAIT_FOR_CONFIRMATION = "wait_for_confirmation"


C, N = Category, NextStep
NEXT_STEPS: Mapping[Category, NextStep] = {
    C.VALIDATION: N.FIX_AND_RESEND,
    C.SENDER: N.REBUILD_AND_RESIGN,
    C.RELAY: N.RETRY_LATER,
    C.SETTLEMENT: N.RETRY_LATER,
    C.REPLACEMENT: N.START_NEW_PAYMENT,
    C.IDENTITY: N.START_NEW_PAYMENT,
}

TERMINAL_REASONS: Mapping[PaymentState, Mapping[str, Category]] = {
    S.FAILED: {
        "invalid_transaction": C.VALIDATION,
        "not_sponsored": C.VALIDATION,
        "sender_nonce_stale": C.SENDER,
        "sender_nonce_gap": C.SENDER,
        "sender_nonce_duplicate": C.SENDER,
        "origin_chaining_limit": C.SENDER,
        "sender_hand_expired": C.SENDER,
        "queue_unavailable": C.RELAY,
        "sponsor_failure": C.RELAY,
        "internal_error": C.RELAY,
        "sponsor_exhausted": C.RELAY,
        "sponsor_nonce_conflict": C.RELAY,
        "broadcast_failure": C.SETTLEMENT,
        "chain_abort": C.SETTLEMENT,
        "broadcast_rate_limited": C.SETTLEMENT,
    },
    S.REPLACED: {"nonce_replacement": C.REPLACEMENT, "superseded": C.REPLACEMENT},
    S.NOT_FOUND: {"expired": C.IDENTITY, "unknown_payment_identity": C.IDENTITY},
}
CATEGORY_OF: Mapping[str, Category] = {
    reason: category for reasons in TERMINAL_REASONS.values() for reason, category in reasons.items()
}

# What POST /settle and /verify refuse with.
SETTLE_ERRORS: Mapping[str, Category] = {
    "invalid_payload": C.VALIDATION,
    "invalid_payment_requirements": C.VALIDATION,
    "invalid_network": C.VALIDATION,
    "invalid_scheme": C.VALIDATION,
    "unsupported_scheme": C.VALIDATION,
    "invalid_x402_version": C.VALIDATION,
    "unrecognized_asset": C.VALIDATION,
    "recipient_mismatch": C.VALIDATION,
    "amount_insufficient": C.VALIDATION,
    "sender_mismatch": C.VALIDATION,
    "invalid_transaction_state": C.VALIDATION,
    "signature_validation_failed": C.VALIDATION,
    "payment_identifier_required": C.VALIDATION,
    "insufficient_funds": C.SENDER,
    "client_insufficient_funds": C.SENDER,
    "client_bad_nonce": C.SENDER,
    "conflicting_nonce": C.SENDER,
    "transaction_held": C.SENDER,
    "payment_identifier_conflict": C.IDENTITY,
    "transaction_not_found": C.IDENTITY,
    "transaction_pending": C.SETTLEMENT,
    "transaction_failed": C.SETTLEMENT,
    "broadcast_failed": C.SETTLEMENT,
    "unexpected_verify_error": C.RELAY,
    "unexpected_settle_error": C.RELAY,
}
RETRYABLE = frozenset({C.SENDER, C.RELAY, C.SETTLEMENT})


def next_state(state: PaymentState, seen: PaymentState) -> PaymentState:
    """The one door: raises when a relay tells a story that cannot be.

    A poller sees only some of the steps, so a state that the table reaches by several is as good.
    """
    if state is seen or seen in _reachable(state):
        return seen
    raise IllegalTransition(signal=f"the relay's {seen}", state=state)


def next_step(reason: str) -> NextStep:
    """What the payer does about a refusal or a terminal reason."""
    if reason == "transaction_held":
        return N.WAIT_FOR_CONFIRMATION
    return NEXT_STEPS[category_of(reason)]


def category_of(reason: str) -> Category:
    return CATEGORY_OF.get(reason) or SETTLE_ERRORS.get(reason) or Category.RELAY


def is_retryable(reason: str) -> bool:
    return category_of(reason) in RETRYABLE


def read_state(text: str) -> PaymentState | None:
    """None for a word nobody published."""
    try:
        return SYNONYMS.get(text) or PaymentState(text)
    except ValueError:
        return None


def _reachable(state: PaymentState) -> frozenset[PaymentState]:
    found: set[PaymentState] = set()
    edge = set(TRANSITIONS[state])
    while edge - found:
        found |= edge
        edge = {after for step in edge for after in TRANSITIONS[step]}
    return frozenset(found)
