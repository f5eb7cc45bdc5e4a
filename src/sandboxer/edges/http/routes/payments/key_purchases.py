"""A tier for some months, and a key to use it with, paid by x402 in the request."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import records as accounts
from sandboxer.accounts.offers import Payable
from sandboxer.accounts.records import Account
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
from sandboxer.kernel.errors import PaymentNeeded
from sandboxer.money.pricing import tier_price
from sandboxer.payments.lifecycle import State
from sandboxer.payments.oracle.conversion import sats_for_cents
from sandboxer.payments.records import Purpose
from sandboxer.payments.selling import check_sale
from sandboxer.payments.x402.checkout import is_delivered, refusal_of
from sandboxer.payments.x402.refusals import Wanted
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.payments import BoughtKey, BuyKey


async def buy(asked: Asked[NoParameters, NoParameters, BuyKey]) -> Response:
    platform, x402 = asked.platform, x402_of(asked.request)
    price = tier_price(asked.body.tier, asked.body.months, platform.pricing.tiers)
    account, was_stranger = known_account(asked.request), is_stranger(asked.request)
    if account is not None:
        await _check(asked.request, account, asked.body)
    sats = sats_for_cents(price.cents, await x402.rates.usd("BTC"))
    tag = f"key:{asked.body.tier}:{asked.body.months}"
    payable = Payable(
        operation="buyKey",
        path="/v1/keys/purchase",
        account=account,
        sats=sats,
        least_sats=sats,
        description=f"Tier {asked.body.tier} for {asked.body.months} months",
    )
    presented = presented_in(asked.request)
    if presented is None:
        async with asking(asked.request, payable, sats, tag=tag):
            raise PaymentNeeded(
                why=f"tier {asked.body.tier} is paid for in advance", sats=sats, cents=price.cents
            )
    wanted = Wanted(
        purpose=Purpose.KEY,
        # What the offer said when it was made; rates move meanwhile.
        least_sats=1,
        account=account,
        request_hash=await request_hash(asked.request),
        details={"tier": asked.body.tier, "months": asked.body.months},
        tag=tag,
    )

    async def act(bind: Bind | None) -> Response:
        async with (
            asking(asked.request, payable, sats, tag=tag),
            taken(asked.request, presented, wanted) as hand,
        ):
            if hand.is_new:
                await _check(asked.request, hand.payment.account, asked.body)
            payment = await x402.checkout.settle(hand.payment) if hand.is_new else hand.payment
            if not is_delivered(payment):
                raise refusal_of(payment)
            key = await new_key(asked.request, payment, is_payer=was_stranger and hand.is_new)
            found = await _account(asked.request, payment.account)
            shown_key = BoughtKey.model_construct(
                payment=shown(payment),
                account=found.public_id,
                key=key,
                tier=found.tier_at(platform.clock.now()),
                entitled_until=found.entitled_until,
            )
            answer = json_response(shown_key, 201 if payment.state is State.CONFIRMED else 202)
            answer.headers.update(settled_headers(payment))
            return answer

    return await purchase(asked.request, presented, act)


async def _check(request: Request, account: str, body: BuyKey) -> None:
    """Nobody pays for a tier that cannot be sold to him."""
    found = await _account(request, account)
    check_sale(found, tier=body.tier, months=body.months, now=platform_of(request).clock.now())


async def _account(request: Request, account: str) -> Account:
    def load(conn: Connection) -> Account:
        return accounts.load(conn, account)

    return await platform_of(request).store.read(load)


BINDINGS: tuple[Binding, ...] = (bind(operations.BUY_KEY, buy),)
