"""The operations on payments."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    Json,
    NoParameters,
    Operation,
    Parameters,
)
from sandboxer.wire.operations.paths import PaymentPath
from sandboxer.wire.operations.terms import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Idempotency,
    RateClass,
    Scope,
    needs,
)
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
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT


class ListPaymentsQuery(Parameters):
    cursor: PaymentId | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = PAGE_LIMIT_DEFAULT


BUY_KEY = Operation(
    id="buyKey",
    method="POST",
    path="/v1/keys/purchase",
    noun="payments",
    summary="Buy a tier for some months; a wallet without a key gets one",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(BuyKey),
    answer=Answered(
        model=BoughtKey, status=201, also=((202, "Paid, but not seen settled yet; the tier begins then."),)
    ),
    access=Access.PAYABLE,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.API,
    idempotency=Idempotency.PLAIN,
    failures=(402, 409),
)
TOP_UP = Operation(
    id="topUp",
    method="POST",
    path="/v1/topups",
    noun="payments",
    summary="Buy credit for an account; anyone may pay for any",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(TopUp),
    answer=Answered(
        model=Bought, status=201, also=((202, "Paid, but not seen settled yet; it is credited when it is."),)
    ),
    access=Access.PAYABLE,
    needs=ANY_KEY,
    rate=RateClass.API,
    idempotency=Idempotency.PLAIN,
    failures=(402, 404, 409),
)
LIST_PAYMENTS = Operation(
    id="listPayments",
    method="GET",
    path="/v1/payments",
    noun="payments",
    summary="Payments for one's account, newest first",
    parameters=NoParameters,
    query=ListPaymentsQuery,
    body=Empty(),
    answer=Answered(model=PaymentPage),
    access=Access.SIGNED,
    needs=needs(Scope.ACCOUNT_READ),
    rate=RateClass.API,
    failures=(404,),
)
GET_PAYMENT = Operation(
    id="getPayment",
    method="GET",
    path="/v1/payments/{payment_id}",
    noun="payments",
    summary="What became of a payment",
    parameters=PaymentPath,
    query=NoParameters,
    body=Empty(),
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Goods),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(503,),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    BUY_KEY,
    TOP_UP,
    LIST_PAYMENTS,
    GET_PAYMENT,
    GET_X402,
    LIST_GOODS,
)
