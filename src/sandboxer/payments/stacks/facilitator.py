"""The facilitator for `exact` on Stacks: it verifies payments itself and settles them through a relay.

Every payment is checked before the relay gets it. "Settled" by a relay means broadcast. When its answer is
lost, the payment is `settlement_pending`: it has not failed, and it is not asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.stacks.nodes import StacksNode
from sandboxer.payments.stacks.relay import (
    NextStep,
    NotSettled,
    PaymentState,
    Relay,
    Settled,
    Unknown,
    category_of,
    identifier_for,
    is_retryable,
    next_step,
    with_identifier,
)
from sandboxer.payments.stacks.shop import Payment, StacksShop, Unpayable, check_payment
from sandboxer.payments.stacks.transfers import SCHEME

PENDING = "settlement_pending"
# So many payments of one wallet a node lets wait in a row.
NONCES_AHEAD = 25


def verify_payment(
    payload: PaymentPayload, requirements: PaymentRequirements, shop: StacksShop
) -> Payment | VerifyResponse:
    """Return the payment, or why it is not valid. Pure."""
    if payload.accepted.scheme != SCHEME or requirements.scheme != SCHEME:
        return VerifyResponse(is_valid=False, invalid_reason="unsupported_scheme")
    if payload.accepted.network != requirements.network:
        return VerifyResponse(is_valid=False, invalid_reason="invalid_network")
    try:
        return check_payment(payload.payload.get("transaction"), requirements, shop)
    except Unpayable as refusal:
        return _invalid(refusal.reason, refusal.why, refusal.payer)


class StacksFacilitator:
    """Checks and settles payments in the shape of x402's FacilitatorClient (async).

    With a node it also sees whether the payer has what he pays with and whether the nonce is free, so that
    nobody is served for a payment that cannot come.
    """

    def __init__(self, shop: StacksShop, relay: Relay, node: StacksNode | None = None) -> None:
        self._shop = shop
        self._relay = relay
        self._node = node

    async def verify(self, payload: PaymentPayload, requirements: PaymentRequirements) -> VerifyResponse:
        """Raises ChainUnavailable when the node cannot be asked."""
        payment = verify_payment(payload, requirements, self._shop)
        if isinstance(payment, VerifyResponse):
            return payment
        if self._node is not None and (refusal := await _unaffordable(payment, self._node)) is not None:
            return refusal
        return VerifyResponse(is_valid=True, payer=payment.payer, extra=_facts(payment))

    async def settle(self, payload: PaymentPayload, requirements: PaymentRequirements) -> SettleResponse:
        payment = verify_payment(payload, requirements, self._shop)
        if isinstance(payment, VerifyResponse):
            return _refused(payment, str(requirements.network))
        body = payload.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = with_identifier(body, identifier_for(payment.network, payment.payer, payment.nonce))
        asked = requirements.model_dump(mode="json", by_alias=True, exclude_none=True)
        return await _settle(payment, lambda: self._relay.settle(body, asked))


async def _unaffordable(payment: Payment, node: StacksNode) -> VerifyResponse | None:
    free = await node.nonce(payment.payer)
    if payment.nonce < free:
        return _invalid("client_bad_nonce", f"nonce {payment.nonce} is spent, {free} is free", payment.payer)
    if payment.nonce >= free + NONCES_AHEAD:
        return _invalid("client_bad_nonce", f"nonce {payment.nonce} is too far from {free}", payment.payer)
    token = payment.token.name
    balance = await node.balance(payment.payer, None if token is None else token.text)
    if balance < payment.amount:
        return _invalid("insufficient_funds", f"the payer has {balance} of {payment.amount}", payment.payer)
    return None


async def _settle(
    payment: Payment, ask: Callable[[], Awaitable[Settled | NotSettled | Unknown]]
) -> SettleResponse:
    try:
        answer = await ask()
    except ChainUnavailable as unheard:
        return _failed(payment, "unexpected_settle_error", str(unheard), {"sent": False})
    if isinstance(answer, Unknown) and not answer.timed_out:
        answer = await _once_more(answer, ask)
    match answer:
        case Settled():
            return _settled(payment, answer)
        case NotSettled(reason=reason, message=message, queue=queue):
            return _failed(payment, reason, message, {"queue": dict(queue)} if queue else {})
        case Unknown(why=why):
            return _pending(payment, why)


async def _once_more(
    lost: Unknown, ask: Callable[[], Awaitable[Settled | NotSettled | Unknown]]
) -> Settled | Unknown:
    """Ask again at once for a lost answer; the relay keeps it by identifier.

    Only a success is believed: a refusal may be about this second try, while the first is on its way.
    """
    try:
        answer = await ask()
    except ChainUnavailable:
        return lost
    return answer if isinstance(answer, Settled) else lost


def _pending(payment: Payment, why: str) -> SettleResponse:
    return SettleResponse(
        success=False,
        error_reason=PENDING,
        error_message=f"the relay's answer was lost ({why}); it is looked for, do not pay again",
        payer=payment.payer,
        transaction=payment.unsponsored_txid,
        network=payment.network,
        amount=str(payment.amount),
        extra={
            **_facts(payment),
            "txidIsUnsponsored": True,
            "nextSteps": NextStep.WAIT_FOR_CONFIRMATION.value,
        },
    )


def _invalid(reason: str, why: str, payer: str | None) -> VerifyResponse:
    return VerifyResponse(
        is_valid=False, invalid_reason=reason, invalid_message=why, payer=payer, extra=_advice(reason)
    )


def _settled(payment: Payment, answer: Settled) -> SettleResponse:
    extra: dict[str, Any] = {**_facts(payment), "status": PaymentState.MEMPOOL.value}
    if answer.payment_id is not None:
        extra["paymentId"] = answer.payment_id
    return SettleResponse(
        success=True,
        payer=payment.payer,
        transaction=answer.txid,
        network=payment.network,
        amount=str(payment.amount),
        extra=extra,
    )


def _failed(payment: Payment, reason: str, message: str, more: Mapping[str, Any]) -> SettleResponse:
    return SettleResponse(
        success=False,
        error_reason=reason,
        error_message=message or None,
        payer=payment.payer,
        transaction="",
        network=payment.network,
        extra={**_facts(payment), **_advice(reason), **more},
    )


def _refused(verdict: VerifyResponse, network: str) -> SettleResponse:
    return SettleResponse(
        success=False,
        error_reason=verdict.invalid_reason,
        error_message=verdict.invalid_message,
        payer=verdict.payer,
        transaction="",
        network=network,
        extra=verdict.extra,
    )


def _facts(payment: Payment) -> dict[str, Any]:
    return {"nonce": payment.nonce, "asset": payment.token.asset.code}


def _advice(reason: str) -> dict[str, Any]:
    return {
        "category": category_of(reason).value,
        "nextSteps": next_step(reason).value,
        "retryable": is_retryable(reason),
    }
