"""The operations on gift cards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.gift_cards import (
    AskBalance,
    BuyGiftCard,
    CardBalance,
    CardId,
    CardWord,
    GiftCard,
    GiftCardList,
    GiftPricing,
    NewGiftCard,
    NewRedemption,
    Redeem,
    Redemption,
    RefundCard,
    RefundedCard,
    Revoke,
    ShowCode,
    ShownCode,
)
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    Bytes,
    Idempotency,
    Json,
    Operation,
    Parameters,
    RateClass,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import CardPath, RedemptionPath, TokenPath
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX


class ListGiftCardsQuery(Parameters):
    state: CardWord | None = None
    cursor: CardId | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


SHOW_APPROVAL = Operation(
    id="showApproval",
    method="GET",
    path="/v1/gift-cards/approvals/{token}",
    noun="gift cards",
    summary="What the link asks",
    parameters=TokenPath,
    answer=Bytes(media_type="text/html", words="A page with two buttons; nothing changes.", is_text=True),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 409, 422),
)
APPROVE_REDEMPTION = Operation(
    id="approveRedemption",
    method="POST",
    path="/v1/gift-cards/approvals/{token}/approve",
    noun="gift cards",
    summary="Let it be redeemed; the link works once",
    parameters=TokenPath,
    answer=Answered(
        model=Redemption, other_form=("text/html", "The redemption as it is now; a page for browsers.")
    ),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.AUTH,
    failures=(404, 408, 409, 413, 422, 503),
)
DENY_REDEMPTION = Operation(
    id="denyRedemption",
    method="POST",
    path="/v1/gift-cards/approvals/{token}/deny",
    noun="gift cards",
    summary="Do not; the amount is on the card again",
    parameters=TokenPath,
    answer=Answered(
        model=Redemption, other_form=("text/html", "The redemption as it is now; a page for browsers.")
    ),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.AUTH,
    failures=(404, 408, 409, 413, 422, 503),
)
GET_GIFT_PRICING = Operation(
    id="getGiftPricing",
    method="GET",
    path="/v1/gift-cards/pricing",
    noun="gift cards",
    summary="What cards there are, how they are paid and guarded",
    answer=Answered(model=GiftPricing),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
BUY_GIFT_CARD = Operation(
    id="buyGiftCard",
    method="POST",
    path="/v1/gift-cards",
    noun="gift cards",
    summary="A card: by invoice, from one's sats, or given by the operator",
    body=Json(BuyGiftCard),
    answer=Answered(model=NewGiftCard, status=201),
    access=Access.EITHER,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    idempotency=Idempotency.SECRET,
    failures=(401, 402, 403, 404, 409),
)
LIST_GIFT_CARDS = Operation(
    id="listGiftCards",
    method="GET",
    path="/v1/gift-cards",
    noun="gift cards",
    summary="Every card, newest first (owner)",
    query=ListGiftCardsQuery,
    answer=Answered(model=GiftCardList),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
REDEEM_GIFT_CARD = Operation(
    id="redeemGiftCard",
    method="POST",
    path="/v1/gift-cards/redeem",
    noun="gift cards",
    summary="Four words for a tier, or for sats; whole or in part",
    body=Json(Redeem),
    answer=Answered(model=NewRedemption, status=201, also=((202, "Somebody must approve it first."),)),
    access=Access.EITHER,
    needs=ANY_KEY,
    rate=RateClass.AUTH,
    is_repeatable=True,
    failures=(401, 403, 404, 409, 428),
)
GET_GIFT_BALANCE = Operation(
    id="getGiftBalance",
    method="POST",
    path="/v1/gift-cards/balance",
    noun="gift cards",
    summary="What is left behind four words",
    body=Json(AskBalance),
    answer=Answered(model=CardBalance),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.AUTH,
    is_repeatable=True,
    failures=(404, 408, 413, 422, 428, 503),
)
GET_REDEMPTION = Operation(
    id="getRedemption",
    method="GET",
    path="/v1/gift-cards/redemptions/{redemption_id}",
    noun="gift cards",
    summary="What became of a redemption; ask every 14 seconds",
    parameters=RedemptionPath,
    answer=Answered(model=Redemption),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)
GET_GIFT_CARD = Operation(
    id="getGiftCard",
    method="GET",
    path="/v1/gift-cards/{card_id}",
    noun="gift cards",
    summary="How a card stands; ask every 14 seconds until it is paid",
    parameters=CardPath,
    answer=Answered(model=GiftCard),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)
SHOW_GIFT_CODE = Operation(
    id="showGiftCode",
    method="POST",
    path="/v1/gift-cards/{card_id}/code",
    noun="gift cards",
    summary="The four words of a paid card, once (buyer)",
    parameters=CardPath,
    body=Json(ShowCode),
    answer=Answered(model=ShownCode),
    access=Access.EITHER,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(401, 403, 404, 409),
)
REVOKE_GIFT_CARD = Operation(
    id="revokeGiftCard",
    method="POST",
    path="/v1/gift-cards/{card_id}/revoke",
    noun="gift cards",
    summary="Nothing can be redeemed any more (buyer, owner)",
    parameters=CardPath,
    body=Json(Revoke),
    answer=Answered(model=GiftCard),
    access=Access.EITHER,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    is_repeatable=True,
    failures=(401, 403, 404, 409),
)
REFUND_GIFT_CARD = Operation(
    id="refundGiftCard",
    method="POST",
    path="/v1/gift-cards/{card_id}/refund",
    noun="gift cards",
    summary="What is left goes back: to sats, or to a coin address less restocking (buyer, owner)",
    parameters=CardPath,
    body=Json(RefundCard),
    answer=Answered(model=RefundedCard),
    access=Access.EITHER,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(401, 403, 404, 409),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    SHOW_APPROVAL,
    APPROVE_REDEMPTION,
    DENY_REDEMPTION,
    GET_GIFT_PRICING,
    BUY_GIFT_CARD,
    LIST_GIFT_CARDS,
    REDEEM_GIFT_CARD,
    GET_GIFT_BALANCE,
    GET_REDEMPTION,
    GET_GIFT_CARD,
    SHOW_GIFT_CODE,
    REVOKE_GIFT_CARD,
    REFUND_GIFT_CARD,
)
