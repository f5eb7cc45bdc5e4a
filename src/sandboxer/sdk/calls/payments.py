# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on payments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.invoices import RateList
    from sandboxer.wire.payments import Bought, BoughtKey, Goods, Payment, PaymentPage, WellKnown
    from sandboxer.wire.pricing import Pricing, Quote


def buy_key(*, tier: int, months: int, idempotency_key: str | None = None) -> Call[BoughtKey]:
    """Buy a tier for some months; a wallet without a key gets one."""
    return Call(
        operation="buyKey",
        method="POST",
        target="/v1/keys/purchase",
        answer="sandboxer.wire.payments:BoughtKey",
        body=json_body({"tier": tier, "months": months}),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=120.0,
    )


def top_up(*, sats: int, account: str | None = None, idempotency_key: str | None = None) -> Call[Bought]:
    """Buy credit for an account; anyone may pay for any."""
    return Call(
        operation="topUp",
        method="POST",
        target="/v1/topups",
        answer="sandboxer.wire.payments:Bought",
        body=json_body({"sats": sats}, account=account),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=120.0,
    )


def list_payments(*, cursor: str | None = None, limit: int | None = None) -> Call[PaymentPage]:
    """List payments for this account, newest first."""
    return Call(
        operation="listPayments",
        method="GET",
        target=target_of("/v1/payments", cursor=cursor, limit=limit),
        answer="sandboxer.wire.payments:PaymentPage",
    )


def get_payment(payment_id: str) -> Call[Payment]:
    """Show what became of a payment."""
    return Call(
        operation="getPayment",
        method="GET",
        target=target_of("/v1/payments/{}", payment_id),
        answer="sandboxer.wire.payments:Payment",
    )


def get_x402() -> Call[WellKnown]:
    """Show where payments by x402 are taken."""
    return Call(
        operation="getX402",
        method="GET",
        target="/.well-known/x402",
        answer="sandboxer.wire.payments:WellKnown",
    )


def list_goods() -> Call[Goods]:
    """List what is for sale, with offers at the least price."""
    return Call(
        operation="listGoods",
        method="GET",
        target="/discovery/resources",
        answer="sandboxer.wire.payments:Goods",
    )


def list_rates() -> Call[RateList]:
    """List what each coin is worth in US dollars, and who says so."""
    return Call(
        operation="listRates",
        method="GET",
        target="/v1/rates",
        answer="sandboxer.wire.invoices:RateList",
    )


def get_pricing() -> Call[Pricing]:
    """Show every price."""
    return Call(
        operation="getPricing",
        method="GET",
        target="/v1/pricing",
        answer="sandboxer.wire.pricing:Pricing",
    )


def get_pricing_for_agents() -> Call[Pricing]:
    """Show every price, at the address where agents look for it."""
    return Call(
        operation="getPricingForAgents",
        method="GET",
        target="/pricing-for-agents.json",
        answer="sandboxer.wire.pricing:Pricing",
    )


def ask_quote(
    *, profile: str | None = None, resources: Mapping[str, Any] | None = None, duration: str | None = None
) -> Call[Quote]:
    """Quote what a sandbox would cost; create and extend may name the quote and pay these rates."""
    return Call(
        operation="askQuote",
        method="POST",
        target="/v1/quotes",
        answer="sandboxer.wire.pricing:Quote",
        body=json_body({}, profile=profile, resources=resources, duration=duration),
        headers=headers_of(content_type="application/json"),
    )
