"""The relay's JSON is made and read here. Pure; an answer is either understood or `Unreadable`.

States, transitions, reasons and categories are the relays' published ones; they are data here, so that a new
reason is one line, and an unknown one is treated as the relay's own fault rather than the payer's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandboxer.kernel.errors import IllegalTransition

PAYMENT_ID = re.compile(r"pay_[A-Za-z0-9_-]{1,200}")
_TXID = re.compile(r"(0x)?([0-9a-f]{64})")
_IDENTIFIER = "payment-identifier"
Json = Mapping[str, Any]


class Unreadable(ValueError):
    """The relay's answer makes no sense: what happened is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The relay accepted the payment for broadcast; it is not confirmed yet."""

    txid: str
    payer: str
    payment_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSettled:
    """The relay refused the payment, or holds it until missing nonces come (`queue`)."""

    reason: str
    message: str = ""
    payer: str | None = None
    queue: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    state: PaymentState
    payment_id: str | None = None
    txid: str | None = None
    height: int | None = None
    reason: str | None = None
    retryable: bool | None = None


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


def payment_body(payload: Json, requirements: Json) -> dict[str, Any]:
    return {"x402Version": 2, "paymentPayload": dict(payload), "paymentRequirements": dict(requirements)}


def with_identifier(payload: Json, identifier: str) -> dict[str, Any]:
    """Add our identifier unless the payer set one; it makes a repeated call the same call."""
    extensions = dict(payload.get("extensions") or {})
    if _identifier_of(extensions) is None:
        extensions[_IDENTIFIER] = {"info": {"id": identifier, "required": False}}
    return {**payload, "extensions": extensions}


def identifier_for(network: str, payer: str, nonce: int) -> str:
    """Return the identifier of a payment: the same for every try, also after a restart."""
    return "sbx_" + hashlib.sha256(f"{network}:{payer}:{nonce}".encode()).hexdigest()[:40]


def read_settlement(body: object) -> Settled | NotSettled:
    answer = _object(body)
    match answer.get("success"):
        case True:
            return Settled(
                txid=read_txid(answer.get("transaction")),
                payer=_text(answer, "payer") or "",
                payment_id=_payment_id(answer),
            )
        case False:
            return NotSettled(
                reason=_text(answer, "errorReason") or "unexpected_settle_error",
                message=_text(answer, "errorMessage") or "",
                payer=_text(answer, "payer"),
                queue=_queue(answer.get("queue")),
            )
    raise Unreadable("the answer says neither success nor failure")


def read_verification(body: object) -> NotSettled | None:
    """None: valid."""
    answer = _object(body)
    match answer.get("isValid"):
        case True:
            return None
        case False:
            return NotSettled(
                reason=_text(answer, "invalidReason") or "unexpected_verify_error",
                message=_text(answer, "invalidMessage") or "",
            )
    raise Unreadable("the answer says neither valid nor invalid")


def read_status(body: object) -> Status:
    answer = _object(body)
    state = read_state(str(answer.get("status")))
    if state is None:
        raise Unreadable(f"status {str(answer.get('status'))[:40]!r} is not known")
    height = answer.get("blockHeight")
    if state is PaymentState.CONFIRMED and not isinstance(height, int):
        # Confirmed means in a block; a relay that cannot name it has not seen it there.
        state = PaymentState.MEMPOOL
    txid = answer.get("txid")
    return Status(
        state=state,
        payment_id=_text(answer, "paymentId"),
        txid=read_txid(txid) if txid else None,
        height=height if isinstance(height, int) else None,
        reason=_text(answer, "terminalReason"),
        retryable=answer.get("retryable") if isinstance(answer.get("retryable"), bool) else None,
    )


def read_txid(value: object) -> str:
    found = _TXID.fullmatch(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise Unreadable("the answer has no transaction id")
    return found[2]


def _identifier_of(extensions: Json) -> str | None:
    declared = extensions.get(_IDENTIFIER)
    info = declared.get("info") if isinstance(declared, Mapping) else None
    found = info.get("id") if isinstance(info, Mapping) else None
    return found if isinstance(found, str) else None


def _payment_id(answer: Json) -> str | None:
    """Relays put it at the top, or among the extensions."""
    candidates = (answer.get("paymentId"), _identifier_of(_queue(answer.get("extensions"))))
    return next((c for c in candidates if isinstance(c, str) and PAYMENT_ID.fullmatch(c)), None)


def _object(body: object) -> Json:
    if not isinstance(body, Mapping):
        raise Unreadable("the answer is not an object")
    return body


def _queue(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _text(answer: Json, name: str) -> str | None:
    value = answer.get(name)
    return value[:500] if isinstance(value, str) and value else None


def next_state(state: PaymentState, seen: PaymentState) -> PaymentState:
    """Return the new state. Raises IllegalTransition for one that cannot follow.

    A poller sees only some of the steps, so a state that is reached by several steps is accepted.
    """
    if state is seen or seen in _reachable(state):
        return seen
    raise IllegalTransition(signal=f"the relay's {seen}", state=state)


def next_step(reason: str) -> NextStep:
    """Return what the payer should do about a refusal or a terminal reason."""
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
