"""Credit for an account, one's own or anybody's whose public id is known: paid by x402 in the request."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import records as accounts
from sandboxer.accounts.offers import Payable
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.idempotency import Bind
from sandboxer.edges.http.matching import Binding
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
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.payments import Bought, TopUp


async def top_up(asked: Asked[NoParameters, NoParameters, TopUp]) -> Response:
    x402 = x402_of(asked.request)
    if asked.body.sats < x402.settings.minimum_sats:
        raise InvalidRequest(field="sats", why=f"the least is {x402.settings.minimum_sats}")
    account = known_account(asked.request)
    if asked.body.account is not None:
        public_id = asked.body.account
        now = asked.platform.clock.now()
        found = await asked.platform.store.read(lambda conn: account_to_pay(conn, public_id, now=now))
        account = found.id
    payable = Payable(
        operation="topUp",
        path="/v1/topups",
        account=known_account(asked.request),
        sats=asked.body.sats,
        least_sats=asked.body.sats,
        description=f"{asked.body.sats} sats of credit",
    )
    presented = presented_in(asked.request)
    if presented is None:
        async with asking(asked.request, payable, asked.body.sats):
            raise PaymentNeeded(
                why=f"{asked.body.sats} sats of credit are paid for in advance", sats=asked.body.sats
            )
    wanted = Wanted(
        purpose=Purpose.TOPUP,
        least_sats=asked.body.sats,
        account=account,
        request_hash=await request_hash(asked.request),
        details={},
        most_sats=asked.body.sats,
    )
    return await _take(asked.request, payable, presented, wanted, is_gift=asked.body.account is not None)


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


BINDINGS: tuple[Binding, ...] = (bind(operations.TOP_UP, top_up),)
