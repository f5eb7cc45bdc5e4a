"""Payments that were made: one's own, or any by its id, which nobody can guess."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures, unsigned_failures
from sandboxer.edges.http.purchases import shown
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.payments import records
from sandboxer.wire.payments import Payment, PaymentId, PaymentPage
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT

router = APIRouter(prefix="/v1/payments", tags=["payments"])


@router.get(
    "",
    operation_id="listPayments",
    response_model=PaymentPage,
    responses=failures(404),
    summary="Payments for one's account, newest first",
)
async def list_payments(
    request: Request,
    cursor: Annotated[PaymentId | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=records.MAX_PAGE)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    account = caller(request).account
    found = await platform_of(request).store.read(
        lambda conn: records.page(conn, account, cursor=cursor, limit=limit)
    )
    following = found[-1].id if len(found) == limit else None
    page = PaymentPage.model_construct(payments=[shown(one) for one in found], next_cursor=following)
    return json_response(page)


@router.get(
    "/{payment_id}",
    operation_id="getPayment",
    response_model=Payment,
    responses=unsigned_failures(404, 422),
    summary="What became of a payment",
)
async def get_payment(request: Request, payment_id: PaymentId) -> Response:
    found = await platform_of(request).store.read(lambda conn: records.load(conn, payment_id))
    return json_response(shown(found))
