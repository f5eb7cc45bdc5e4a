"""What a payment is wanted for, and why a presented one may not be it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from x402.schemas import VerifyResponse

from sandboxer.kernel.errors import Conflict, PaymentRefused
from sandboxer.money.amounts import Sats
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.x402.presenting import Presented

# In a payment's details: it was on its chain before it was presented here.
FOUND = "found"
_ADVICE = {"nextSteps": "next_steps", "category": "category", "queue": "queue"}


@dataclass(frozen=True, slots=True, kw_only=True)
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


def refuse_other_use(known: Payment, presented: Presented, wanted: Wanted) -> None:
    if known.payload_hash != presented.payload_hash:
        raise Conflict(
            why="this chain nonce was presented before with another payment",
            reason="conflicting_nonce",
            payment_id=known.id,
            hint="Sign a new payment.",
        )
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
    """A payment that was found on its chain is its payer's credit, and proves nothing of who presents it."""
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
    """What a scheme tells the payer besides the reason: in words, and what to do next."""
    told = {fact: (extra or {}).get(name) for name, fact in _ADVICE.items()}
    found = {fact: value for fact, value in told.items() if value is not None}
    return {**found, "because": message[:300]} if message else found
