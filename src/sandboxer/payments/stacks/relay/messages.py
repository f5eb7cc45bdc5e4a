"""The relay's JSON, made and read. Pure; whatever a relay answers is either understood or `Unreadable`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandboxer.payments.stacks.relay.states import PaymentState, read_state

PAYMENT_ID = re.compile(r"pay_[A-Za-z0-9_-]{1,200}")
_TXID = re.compile(r"(0x)?([0-9a-f]{64})")
_IDENTIFIER = "payment-identifier"
Json = Mapping[str, Any]


class Unreadable(ValueError):
    """The relay's answer makes no sense: what happened is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Accepted for broadcast, which is not yet confirmed."""

    txid: str
    payer: str
    payment_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSettled:
    """Refused, or held until missing nonces come (`queue`)."""

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


def payment_body(payload: Json, requirements: Json) -> dict[str, Any]:
    return {"x402Version": 2, "paymentPayload": dict(payload), "paymentRequirements": dict(requirements)}


def with_identifier(payload: Json, identifier: str) -> dict[str, Any]:
    """The payer's own identifier stays; without one, ours makes a repeated call the same call."""
    extensions = dict(payload.get("extensions") or {})
    if _identifier_of(extensions) is None:
        extensions[_IDENTIFIER] = {"info": {"id": identifier, "required": False}}
    return {**payload, "extensions": extensions}


def identifier_for(network: str, payer: str, nonce: int) -> str:
    """The same for every try of this payment, also after a restart: one payer spends one nonce once."""
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
