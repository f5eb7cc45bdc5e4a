"""Credit for an account, one's own or anybody's whose public id is known: paid by x402 in the request."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import records as accounts
from sandboxer.accounts.offers import Payable
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey
from sandboxer.edges.http.purchases import (
    asking,
    is_stranger,
    known_account,
    new_key,
    presented_in,
    purchase,
    request_hash,
    settled_headers,
    shown,
    taken,
    x402_of,
)
from sandboxer.edges.http.state import platform_of
from sandboxer.kernel.errors import InvalidRequest, PaymentNeeded
from sandboxer.payments.crediting import account_to_pay
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Purpose
from sandboxer.payments.x402.checkout import is_delivered, refusal_of
from sandboxer.payments.x402.presenting import Presented
from sandboxer.payments.x402.refusals import Wanted
from sandboxer.wire.payments import Bought, TopUp

router = APIRouter(prefix="/v1/topups", tags=["payments"])


@router.post(
    "",
    operation_id="topUp",
    status_code=201,
    response_model=Bought,
    responses={
        202: {"model": Bought, "description": "Paid, but not seen settled yet; it is credited when it is."},
        **failures(402, 404, 409),
    },
    summary="Buy credit for an account; anyone may pay for any",
)
async def top_up(request: Request, body: TopUp, idempotency_key: IdempotencyKey = None) -> Response:
    x402 = x402_of(request)
    if body.sats < x402.settings.minimum_sats:
        raise InvalidRequest(field="sats", why=f"the least is {x402.settings.minimum_sats}")
    account = known_account(request)
    if body.account is not None:
        public_id = body.account
        now = platform_of(request).clock.now()
        found = await platform_of(request).store.read(lambda conn: account_to_pay(conn, public_id, now=now))
        account = found.id
    payable = Payable(
        operation="topUp",
        path="/v1/topups",
        account=known_account(request),
        sats=body.sats,
        least_sats=body.sats,
        description=f"{body.sats} sats of credit",
    )
    presented = presented_in(request)
    if presented is None:
        async with asking(request, payable, body.sats):
            raise PaymentNeeded(why=f"{body.sats} sats of credit are paid for in advance", sats=body.sats)
    wanted = Wanted(
        purpose=Purpose.TOPUP,
        least_sats=body.sats,
        account=account,
        request_hash=await request_hash(request),
        details={},
        most_sats=body.sats,
    )
    return await _take(request, payable, presented, wanted, is_gift=body.account is not None)


async def _take(
    request: Request, payable: Payable, presented: Presented, wanted: Wanted, *, is_gift: bool
) -> Response:
    x402 = x402_of(request)
    was_stranger = is_stranger(request)

    async def act(bind: Bind | None) -> Response:
        async with (
            asking(request, payable, wanted.least_sats),
            taken(request, presented, wanted) as hand,
        ):
            payment = await x402.checkout.settle(hand.payment) if hand.is_new else hand.payment
            if not is_delivered(payment):
                raise refusal_of(payment)
            is_payer = was_stranger and hand.is_new and not is_gift
            key = await new_key(request, payment, is_payer=is_payer)

            def public_id(conn: Connection) -> str:
                return accounts.load(conn, payment.account).public_id

            paid_for = await platform_of(request).store.read(public_id)
            body = Bought.model_construct(payment=shown(payment), account=paid_for, key=key)
            status = 201 if payment.state in (State.CONFIRMED, State.MEMPOOL) else 202
            answer = json_response(body, status)
            answer.headers.update(settled_headers(payment))
            return answer

    return await purchase(request, presented, act)
