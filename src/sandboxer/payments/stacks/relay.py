"""A sponsor relay signs as sponsor, pays the fee, broadcasts a payment and reports what became of it.

A call ends in one of three ways: with an answer, because the relay was never reached, or unknown. Unknown is
not a failure: the payment may be on chain. Asking again with the same words is safe, because the relay keeps
answers by identifier and the chain accepts a nonce once.

The relay's JSON is made and read here; an answer is either understood or `Unreadable`. States, reasons and
categories are the relays' published ones; they are data here, so that a new reason is one line, and an
unknown one is treated as the relay's own fault rather than the payer's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

import httpx

from sandboxer.kernel.errors import ChainUnavailable, InvalidRequest
from sandboxer.kernel.values import brief_value_class, value_class

# A relay waits a minute for the chain; we wait a little longer than the relay.
SETTLE_SECONDS = 65.0
ASK_SECONDS = 10.0
MAX_ANSWER = 256 * 1024
_NEVER_HEARD = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.PoolTimeout)
PAYMENT_ID = re.compile(r"pay_[A-Za-z0-9_-]{1,200}")
_TXID = re.compile(r"(0x)?([0-9a-f]{64})")
_IDENTIFIER = "payment-identifier"
Json = Mapping[str, Any]


class Unreadable(ValueError):
    """The relay's answer makes no sense: what happened is unknown."""


@value_class
class Settled:
    """The relay accepted the payment for broadcast; it is not confirmed yet."""

    txid: str
    payer: str
    payment_id: str | None = None


@value_class
class NotSettled:
    """The relay refused the payment, or holds it until missing nonces come (`queue`)."""

    reason: str
    message: str = ""
    payer: str | None = None
    queue: Json = field(default_factory=dict)


@brief_value_class
class Unknown:
    """The payment was sent, but no usable answer came: it may have been broadcast."""

    why: str
    timed_out: bool = False


@value_class
class Status:
    state: PaymentState
    txid: str | None = None
    height: int | None = None
    reason: str | None = None


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
# Some relays have words of their own; the published one says `broadcast` of what waits in the mempool.
SYNONYMS: Mapping[str, PaymentState] = {"submitted": S.QUEUED, "pending": S.MEMPOOL, "broadcast": S.MEMPOOL}


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


def read_status(body: object) -> Status:
    answer = _object(body)
    if (state := read_state(str(answer.get("status")))) is None:
        raise Unreadable(f"status {str(answer.get('status'))[:40]!r} is not known")
    height = answer.get("blockHeight")
    if state is PaymentState.CONFIRMED and not isinstance(height, int):
        # Confirmed means in a block; a relay that cannot name it has not seen it there.
        state = PaymentState.MEMPOOL
    txid = answer.get("txid")
    return Status(
        state=state,
        txid=read_txid(txid) if txid else None,
        height=height if isinstance(height, int) else None,
        reason=_text(answer, "terminalReason"),
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


class Relay:
    def __init__(
        self,
        url: str,
        http: httpx.AsyncClient,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        self._http = http
        self._settle_seconds = settle_seconds
        self._ask_seconds = ask_seconds

    async def settle(self, payload: Json, requirements: Json) -> Settled | NotSettled | Unknown:
        """Raises ChainUnavailable only when the relay cannot have heard of the payment."""
        body = {"x402Version": 2, "paymentPayload": payload, "paymentRequirements": requirements}
        try:
            answer = await self._call("POST", "/settle", self._settle_seconds, body)
            if answer.status_code in (429, 503):
                # Turned away at the door: nothing was looked at.
                raise ChainUnavailable(chain="stacks relay", why=f"the relay answered {answer.status_code}")
            return _settlement(answer)
        except (httpx.RequestError, Unreadable) as lost:
            timed_out = isinstance(lost, httpx.TimeoutException)
            return Unknown(f"{type(lost).__name__}: {lost}"[:200], timed_out)

    async def transaction(self, txid: str) -> Status:
        try:
            path = f"/settle/status/{read_txid(txid)}"
        except Unreadable:
            raise InvalidRequest(field="txid", why="it is not 64 hex digits") from None
        try:
            answer = await self._call("GET", path, self._ask_seconds)
        except httpx.RequestError as gone:
            raise ChainUnavailable(chain="stacks relay", why=f"{type(gone).__name__} on {path}") from gone
        if answer.status_code >= 500 or answer.status_code == 429:
            raise ChainUnavailable(
                chain="stacks relay", why=f"the relay answered {answer.status_code} on {path}"
            )
        return _status(answer)

    async def _call(self, method: str, path: str, seconds: float, body: Json | None = None) -> httpx.Response:
        try:
            return await self._http.request(
                method, self.url + path, json=body, timeout=httpx.Timeout(seconds, connect=5.0)
            )
        except _NEVER_HEARD as never:
            raise ChainUnavailable(
                chain="stacks relay", why=f"{type(never).__name__}: it cannot be reached"
            ) from never


def _settlement(answer: httpx.Response) -> Settled | NotSettled:
    """Read the answer to a settle call. A 500 may have happened after the broadcast."""
    body = _json(answer)
    if answer.status_code == 200:
        return read_settlement(body)
    if 400 <= answer.status_code < 500:
        return NotSettled(reason=_reason(body, answer.status_code), message=answer.text[:500])
    raise Unreadable(f"the relay answered {answer.status_code}")


def _reason(body: object, status: int) -> str:
    found = body.get("errorReason") or body.get("code") if isinstance(body, Mapping) else None
    if isinstance(found, str) and found in SETTLE_ERRORS:
        return found
    return "payment_identifier_conflict" if status == 409 else "invalid_payload"


def _status(answer: httpx.Response) -> Status:
    """Read a status. A 404 means that the relay has forgotten the payment or never knew it."""
    try:
        return read_status(_json(answer))
    except Unreadable as nonsense:
        if answer.status_code == 404:
            return Status(state=PaymentState.NOT_FOUND, reason="expired")
        raise ChainUnavailable(chain="stacks relay", why=f"its answer is not usable: {nonsense}") from None


def _json(answer: httpx.Response) -> object:
    if len(answer.content) > MAX_ANSWER:
        raise Unreadable("the answer is too long")
    try:
        return answer.json()
    except ValueError:
        raise Unreadable("the answer is not JSON") from None
