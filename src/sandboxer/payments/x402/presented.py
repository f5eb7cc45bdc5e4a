"""Reads a payment from a header, within bounds, in version 2 or 1 of the protocol.

Says what a payment is wanted for, and why a presented one may not be used for it. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sandboxer.identity.signatures.wallets import Wallet, contract_wallet, wallet_of
from sandboxer.kernel.errors import Conflict, InvalidRequest, PaymentRefused
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Sats
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment, Purpose, nonce_conflict
from sandboxer.payments.x402.ways import Accepted, Authorization, Way, Ways

if TYPE_CHECKING:
    from x402 import schemas
    from x402.extensions import payment_identifier
    from x402.schemas import PaymentPayload, VerifyResponse, v1
else:
    schemas, v1 = late("x402.schemas"), late("x402.schemas.v1")
    payment_identifier = late("x402.extensions.payment_identifier")

PAYMENT_SIGNATURE = b"payment-signature"
X_PAYMENT = b"x-payment"
MAX_HEADER = 16 * 1024
# Chains' amounts fit 256 bits; more digits are an attack on `int`.
MAX_DIGITS = 78
ID_LENGTHS = range(16, 129)
# In a payment's details: it was on its chain before it was presented here.
FOUND = "found"
_ADVICE = {"nextSteps": "next_steps", "category": "category", "queue": "queue"}


@value_class
class Presented:
    version: int
    payload: PaymentPayload = field(repr=False)
    payload_hash: str
    identifier: str | None
    # Where the payment says it belongs; None: to nothing that is taken here.
    way: Way | None
    accepted: Accepted | None
    authorization: Authorization | None


@value_class
class Wanted:
    """What a payment is for."""

    purpose: Purpose
    # Less is refused.
    least_sats: Sats
    # Who is credited; None: the account of the wallet that pays.
    account: str | None
    # Of method, path and body: a payment pays for one request.
    request_hash: str
    details: Mapping[str, Any]
    # For what has a price of its own: the offer must have been made for this.
    tag: str = ""
    # What it needs, where a way can settle less than was signed; None: what was offered.
    most_sats: Sats | None = None


def payer_wallet(presented: Presented) -> Wallet | None:
    """Return the wallet that pays, as its account is filed: a key by itself, a contract by its chain."""
    way, authorization = presented.way, presented.authorization
    if way is None or authorization is None:
        return None
    wallet = wallet_of(authorization.payer)
    if wallet.namespace != "eip155" or way.reader.is_of_key(presented.payload, presented.payload.accepted):
        return wallet
    return contract_wallet(way.network, authorization.payer)


def payment_header(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the one header that carries a payment. Raises InvalidRequest for two of them."""
    found = [value for name, value in headers if name in (PAYMENT_SIGNATURE, X_PAYMENT)]
    if len(found) > 1:
        raise wrong_payment("a request carries one payment")
    return found[0] if found else None


def read(header: bytes, ways: Ways) -> Presented:
    """Read a payment. Raises InvalidRequest for what is none. `way` says whether it belongs here."""
    document = _document(header)
    payload_hash = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    try:
        if document.get("x402Version") == 1:
            return _version_1(v1.PaymentPayloadV1.model_validate(document), payload_hash, ways)
        payload = schemas.PaymentPayload.model_validate(document)
    except ValidationError:
        raise wrong_payment("it is not a payment of x402 version 1 or 2") from None
    if payload.x402_version != 2:
        raise wrong_payment("x402Version is 1 or 2")
    whole_number(payload.accepted.amount, "accepted.amount")
    way = ways.find(payload.accepted.network, payload.accepted.scheme)
    accepted = None if way is None else way.accepted(payload.accepted.asset)
    return Presented(
        version=2,
        payload=payload,
        payload_hash=payload_hash,
        identifier=_identifier(payload.extensions),
        way=way,
        accepted=accepted,
        authorization=None if way is None else way.reader.read(payload),
    )


def whole_number(text: object, name: str) -> int:
    """Read an amount or a moment, which comes as decimal digits, or as a number from some clients."""
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text < 10**MAX_DIGITS:
        return text
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise wrong_payment(f"{name} is not a whole number")
    return int(text)


def _document(header: bytes) -> dict[str, Any]:
    if len(header) > MAX_HEADER:
        raise wrong_payment(f"the payment header has more than {MAX_HEADER} bytes")
    try:
        document = json.loads(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise wrong_payment("it is not JSON in base 64") from None
    if not isinstance(document, dict):
        raise wrong_payment("it is not a JSON object")
    return document


def _version_1(found: v1.PaymentPayloadV1, payload_hash: str, ways: Ways) -> Presented:
    """Rebuild the requirement, which version 1 does not echo, from the payment itself and what is taken."""
    way = ways.of_v1(found.network, found.scheme)
    accepted = None if way is None else way.accepts[0]
    requirements = schemas.PaymentRequirements(
        scheme=found.scheme,
        network=found.network if way is None else way.network,
        asset="" if accepted is None else accepted.id,
        amount="0",
        pay_to="" if way is None else way.pay_to,
        max_timeout_seconds=0 if way is None else way.timeout_s,
        extra={} if way is None or accepted is None else {**way.extra, **accepted.extra},
    )
    payload = schemas.PaymentPayload(payload=found.payload, accepted=requirements)
    authorization = None if way is None else way.reader.read(payload)
    if authorization is not None:
        requirements.amount = str(authorization.amount)
    return Presented(
        version=1,
        payload=payload,
        payload_hash=payload_hash,
        identifier=None,
        way=way,
        accepted=accepted,
        authorization=authorization,
    )


def _identifier(extensions: Mapping[str, Any] | None) -> str | None:
    """Return the payer's own name for this payment, as the `payment-identifier` extension carries it."""
    extension = (extensions or {}).get(payment_identifier.PAYMENT_IDENTIFIER)
    info = extension.get("info") if isinstance(extension, Mapping) else None
    name = info.get("id") if isinstance(info, Mapping) else None
    if name is None:
        return None
    pattern = payment_identifier.PAYMENT_ID_PATTERN
    if not isinstance(name, str) or len(name) not in ID_LENGTHS or not pattern.fullmatch(name):
        raise wrong_payment("a payment identifier has 16 to 128 characters of a-z, A-Z, 0-9, _ and -")
    return name


def wrong_payment(why: str) -> InvalidRequest:
    return InvalidRequest(field="PAYMENT-SIGNATURE", why=why, reason="invalid_payload")


def refuse_other_use(known: Payment, presented: Presented, wanted: Wanted) -> None:
    """Raise Conflict if the nonce or the payment was used for something else."""
    if known.payload_hash != presented.payload_hash:
        raise nonce_conflict(known)
    if known.state is not State.QUEUED and not _is_same_request(known, wanted):
        raise Conflict(
            why="this payment paid for another request",
            reason="payment_used",
            payment_id=known.id,
            hint="Sign a new payment for this one.",
        )


def _is_same_request(known: Payment, wanted: Wanted) -> bool:
    asked = str(known.details.get("request"))
    if ":" in asked:
        return asked == wanted.request_hash
    # Older records do not say who asked.
    is_same_account = wanted.account is None or wanted.account == known.account
    return asked == wanted.request_hash.partition(":")[0] and is_same_account


def refuse_claim(payment: Payment, wanted: Wanted) -> None:
    """Raise Conflict if a payment that was found on its chain is claimed by someone else than its payer. It
    is the payer's credit, and proves nothing about who presents it.
    """
    if wanted.account == payment.account or (wanted.account is None and wanted.purpose is Purpose.TOPUP):
        return
    raise Conflict(
        why="this payment was on its chain before it was presented; its payer's own account has it as credit",
        reason="credited_to_payer",
        payment_id=payment.id,
        hint="Sign in with that wallet and use the credit, or sign a new payment.",
    )


def refusal(answer: VerifyResponse) -> PaymentRefused:
    reason = answer.invalid_reason or "unexpected_verify_error"
    return PaymentRefused(
        why=f"the payment is not valid: {reason}",
        reason=reason,
        **advice(answer.invalid_message, answer.extra),
    )


def advice(message: str | None, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a scheme tells the payer besides the reason: in words, and what to do next."""
    given = {fact: (extra or {}).get(name) for name, fact in _ADVICE.items()}
    found = {fact: value for fact, value in given.items() if value is not None}
    return {**found, "because": message[:300]} if message else found
