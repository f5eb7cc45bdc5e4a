# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on gift cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import BYTES, STREAM_TIMEOUT_S, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.gift_cards import (
        CardBalance,
        GiftCard,
        GiftCardList,
        GiftPricing,
        NewGiftCard,
        NewRedemption,
        Redemption,
        RefundedCard,
        ShownCode,
    )


def show_approval(token: str) -> Call[bytes]:
    """Show what an approval link asks."""
    return Call(
        operation="showApproval",
        method="GET",
        target=target_of("/v1/gift-cards/approvals/{}", token),
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def approve_redemption(token: str) -> Call[Redemption]:
    """Approve a redemption; the link works once."""
    return Call(
        operation="approveRedemption",
        method="POST",
        target=target_of("/v1/gift-cards/approvals/{}/approve", token),
        answer="sandboxer.wire.gift_cards:Redemption",
    )


def deny_redemption(token: str) -> Call[Redemption]:
    """Deny a redemption; the amount is on the card again."""
    return Call(
        operation="denyRedemption",
        method="POST",
        target=target_of("/v1/gift-cards/approvals/{}/deny", token),
        answer="sandboxer.wire.gift_cards:Redemption",
    )


def get_gift_pricing() -> Call[GiftPricing]:
    """Show what gift cards there are, how they are paid and guarded."""
    return Call(
        operation="getGiftPricing",
        method="GET",
        target="/v1/gift-cards/pricing",
        answer="sandboxer.wire.gift_cards:GiftPricing",
    )


def buy_gift_card(
    *,
    cents: int,
    pay_with: str | None = None,
    currency: str | None = None,
    refund_address: str | None = None,
    approval: Mapping[str, Any] | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[NewGiftCard]:
    """Buy a gift card: by invoice, from one's balance, or given by the operator."""
    return Call(
        operation="buyGiftCard",
        method="POST",
        target="/v1/gift-cards",
        answer="sandboxer.wire.gift_cards:NewGiftCard",
        body=json_body(
            {"cents": cents},
            pay_with=pay_with,
            currency=currency,
            refund_address=refund_address,
            approval=approval,
            reason=reason,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def list_gift_cards(
    *, state: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[GiftCardList]:
    """List every gift card, newest first (owner)."""
    return Call(
        operation="listGiftCards",
        method="GET",
        target=target_of("/v1/gift-cards", state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.gift_cards:GiftCardList",
    )


def redeem_gift_card(
    *,
    code: str,
    request_id: str | None = None,
    tier: int | None = None,
    months: int | None = None,
    cents: int | None = None,
    account: str | None = None,
    work: Mapping[str, Any] | None = None,
) -> Call[NewRedemption]:
    """Redeem a gift card's four words for a tier or for sats, whole or in part."""
    return Call(
        operation="redeemGiftCard",
        method="POST",
        target="/v1/gift-cards/redeem",
        answer="sandboxer.wire.gift_cards:NewRedemption",
        body=json_body(
            {"code": code},
            request_id=request_id,
            tier=tier,
            months=months,
            cents=cents,
            account=account,
            work=work,
        ),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def get_gift_balance(*, code: str, work: Mapping[str, Any] | None = None) -> Call[CardBalance]:
    """Show what is left on a gift card, by its four words."""
    return Call(
        operation="getGiftBalance",
        method="POST",
        target="/v1/gift-cards/balance",
        answer="sandboxer.wire.gift_cards:CardBalance",
        body=json_body({"code": code}, work=work),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def get_redemption(redemption_id: str) -> Call[Redemption]:
    """Show what became of a redemption; ask every 14 seconds."""
    return Call(
        operation="getRedemption",
        method="GET",
        target=target_of("/v1/gift-cards/redemptions/{}", redemption_id),
        answer="sandboxer.wire.gift_cards:Redemption",
    )


def get_gift_card(card_id: str) -> Call[GiftCard]:
    """Show a gift card; ask every 14 seconds until it is paid."""
    return Call(
        operation="getGiftCard",
        method="GET",
        target=target_of("/v1/gift-cards/{}", card_id),
        answer="sandboxer.wire.gift_cards:GiftCard",
    )


def show_gift_code(card_id: str, *, claim: str | None = None, again: bool | None = None) -> Call[ShownCode]:
    """Show the four words of a paid gift card, once (buyer)."""
    return Call(
        operation="showGiftCode",
        method="POST",
        target=target_of("/v1/gift-cards/{}/code", card_id),
        answer="sandboxer.wire.gift_cards:ShownCode",
        body=json_body({}, claim=claim, again=again),
        headers=headers_of(content_type="application/json"),
    )


def revoke_gift_card(card_id: str, *, claim: str | None = None, reason: str | None = None) -> Call[GiftCard]:
    """Revoke a gift card: nothing can be redeemed any more (buyer, owner)."""
    return Call(
        operation="revokeGiftCard",
        method="POST",
        target=target_of("/v1/gift-cards/{}/revoke", card_id),
        answer="sandboxer.wire.gift_cards:GiftCard",
        body=json_body({}, claim=claim, reason=reason),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def refund_gift_card(
    card_id: str, *, to: str, claim: str | None = None, account: str | None = None, address: str | None = None
) -> Call[RefundedCard]:
    """Refund what is left on a gift card: as sats, or to a coin address less a fee (buyer, owner)."""
    return Call(
        operation="refundGiftCard",
        method="POST",
        target=target_of("/v1/gift-cards/{}/refund", card_id),
        answer="sandboxer.wire.gift_cards:RefundedCard",
        body=json_body({"to": to}, claim=claim, account=account, address=address),
        headers=headers_of(content_type="application/json"),
    )
