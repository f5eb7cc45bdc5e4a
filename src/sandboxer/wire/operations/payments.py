"""The operations on prices and payments."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.invoices import RateList
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    Idempotency,
    Json,
    Operation,
    Parameters,
    RateClass,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import PaymentPath
from sandboxer.wire.payments import (
    Bought,
    BoughtKey,
    BuyKey,
    Goods,
    Payment,
    PaymentId,
    PaymentPage,
    TopUp,
    WellKnown,
)
from sandboxer.wire.pricing import AskQuote, Pricing, Quote
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT

BUY_KEY = Operation(
    id="buyKey",
    method="POST",
    path="/v1/keys/purchase",
    noun="payments",
    summary="Buy a tier for some months; a wallet without a key gets one",
    body=Json(BuyKey),
    answer=Answered(
        model=BoughtKey, status=201, also=((202, "Paid, but not seen settled yet; the tier begins then."),)
    ),
    access=Access.PAYABLE,
    needs=needs(Scope.ACCOUNT_MANAGE),
    idempotency=Idempotency.PLAIN,
    patience_s=120.0,
    failures=(402, 409),
)
TOP_UP = Operation(
    id="topUp",
    method="POST",
    path="/v1/topups",
    noun="payments",
    summary="Buy credit for an account; anyone may pay for any",
    body=Json(TopUp),
    answer=Answered(
        model=Bought, status=201, also=((202, "Paid, but not seen settled yet; it is credited when it is."),)
    ),
    access=Access.PAYABLE,
    needs=ANY_KEY,
    idempotency=Idempotency.PLAIN,
    patience_s=120.0,
    failures=(402, 404, 409),
)
GET_PAYMENT = Operation(
    id="getPayment",
    method="GET",
    path="/v1/payments/{payment_id}",
    noun="payments",
    summary="What became of a payment",
    parameters=PaymentPath,
    answer=Answered(model=Payment),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)
GET_X402 = Operation(
    id="getX402",
    method="GET",
    path="/.well-known/x402",
    noun="payments",
    summary="Where payments by x402 are taken",
    answer=Answered(model=WellKnown),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(503,),
)
LIST_GOODS = Operation(
    id="listGoods",
    method="GET",
    path="/discovery/resources",
    noun="payments",
    summary="What is for sale, with offers at the least price",
    answer=Answered(model=Goods),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(503,),
)
LIST_RATES = Operation(
    id="listRates",
    method="GET",
    path="/v1/rates",
    noun="pricing",
    summary="US dollars for one of each asset, and who says so",
    answer=Answered(model=RateList),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
GET_PRICING = Operation(
    id="getPricing",
    method="GET",
    path="/v1/pricing",
    noun="pricing",
    summary="Every price",
    answer=Answered(model=Pricing),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
GET_PRICING_FOR_AGENTS = Operation(
    id="getPricingForAgents",
    method="GET",
    path="/pricing-for-agents.json",
    noun="pricing",
    summary="The same, where agents look for it",
    answer=Answered(model=Pricing),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
ASK_QUOTE = Operation(
    id="askQuote",
    method="POST",
    path="/v1/quotes",
    noun="pricing",
    summary="What a sandbox would cost; create and extend may name it and pay these rates",
    body=Json(AskQuote),
    answer=Answered(model=Quote, status=201),
    needs=ANY_KEY,
    failures=(404, 409),
)


class ListPaymentsQuery(Parameters):
    cursor: PaymentId | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = PAGE_LIMIT_DEFAULT


LIST_PAYMENTS = Operation(
    id="listPayments",
    method="GET",
    path="/v1/payments",
    noun="payments",
    summary="Payments for one's account, newest first",
    query=ListPaymentsQuery,
    answer=Answered(model=PaymentPage),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    BUY_KEY,
    TOP_UP,
    LIST_PAYMENTS,
    GET_PAYMENT,
    GET_X402,
    LIST_GOODS,
    LIST_RATES,
    GET_PRICING,
    GET_PRICING_FOR_AGENTS,
    ASK_QUOTE,
)
