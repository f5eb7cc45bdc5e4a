"""Routes of payments by x402: credit and keys paid in the request, past payments, what is for sale, and what
coins are worth.

Credit can be bought for the caller's account or for any whose public id is known; a tier for some months
comes with a key to use it. A past payment is visible to its account, or to whoever knows its id, which cannot
be guessed. The catalogue is where agents that know x402 look for it, and anyone may read the rates.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import use_cases
from sandboxer.accounts.offers import Payable
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.idempotency import Bind
from sandboxer.edges.http.matcher import Binding
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
from sandboxer.edges.http.requests import platform_of
from sandboxer.kernel.errors import InvalidRequest, NoRate, PaymentNeeded
from sandboxer.money.pricing import tier_price
from sandboxer.payments import records
from sandboxer.payments.credits import account_to_pay
from sandboxer.payments.goods import check_sale
from sandboxer.payments.lifecycle import State
from sandboxer.payments.oracle.rates import Rates, sats_for_cents
from sandboxer.payments.records import Purpose
from sandboxer.payments.x402.checkout import is_delivered, refusal_of
from sandboxer.payments.x402.presented import Presented, Wanted
from sandboxer.wire import invoices as wire
from sandboxer.wire.invoices import RateList
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import PaymentPath
from sandboxer.wire.operations.payments import ListPaymentsQuery
from sandboxer.wire.payments import Bought, BoughtKey, BuyKey, Goods, Payment, PaymentPage, TopUp, WellKnown


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
            paid_for = await use_cases.get(platform_of(request).store, payment.account)
            body = Bought.model_construct(payment=shown(payment), account=paid_for.public_id, key=key)
            status = 201 if payment.state in (State.CONFIRMED, State.MEMPOOL) else 202
            answer = json_response(body, status)
            answer.headers.update(settled_headers(payment))
            return answer

    return await purchase(request, presented, act)


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
        # The amount that the offer stated; rates change meanwhile.
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
            found = await use_cases.get(platform.store, payment.account)
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
    """Makes sure that nobody pays for a tier that cannot be sold to them."""
    platform = platform_of(request)
    found = await use_cases.get(platform.store, account)
    check_sale(found, tier=body.tier, months=body.months, now=platform.clock.now())


async def list_payments(asked: Asked[NoParameters, ListPaymentsQuery, None]) -> PaymentPage:
    account = asked.caller.account
    found = await asked.platform.store.read(
        lambda conn: records.page(conn, account, cursor=asked.query.cursor, limit=asked.query.limit)
    )
    following = found[-1].id if len(found) == asked.query.limit else None
    return PaymentPage.model_construct(payments=[shown(one) for one in found], next_cursor=following)


async def get_payment(asked: Asked[PaymentPath, NoParameters, None]) -> Payment:
    found = await asked.platform.store.read(lambda conn: records.load(conn, asked.path.payment_id))
    return shown(found)


async def well_known(asked: Asked[NoParameters, NoParameters, None]) -> WellKnown:
    platform = asked.platform
    x402, url = platform.payments.x402, platform.settings.url
    goods = [] if x402 is None else await x402.asking.for_sale()
    networks = [] if x402 is None else list(dict.fromkeys(way.network for way in x402.ways.open_ones))
    return WellKnown(
        resources=[good["resource"] for good in goods],
        networks=networks,
        pricing=f"{url}/v1/pricing",
        discovery=f"{url}/discovery/resources",
        document=f"{url}/openapi.json",
    )


async def goods(asked: Asked[NoParameters, NoParameters, None]) -> Goods:
    x402 = asked.platform.payments.x402
    items = [] if x402 is None else await x402.asking.for_sale()
    return Goods.model_validate({"items": items})


async def rates(asked: Asked[NoParameters, NoParameters, None]) -> RateList:
    known = asked.platform.payments.rates
    await known.warm(known.assets)
    off = asked.platform.payments.invoices.why_off()
    lines = [(await _line(known, asset)).model_copy(update={"off": off.get(asset)}) for asset in known.assets]
    return wire.RateList(rates=lines)


async def _line(rates: Rates, asset: str) -> wire.RateLine:
    try:
        rate = await rates.usd(asset)
    except NoRate as error:
        return wire.RateLine(asset=asset, usd=None, sources=[], why=str(error.facts.get("why", "")))
    return wire.RateLine(asset=asset, usd=f"{rate.usd:f}", at=rate.at, sources=list(rate.sources))


BINDINGS: tuple[Binding, ...] = (
    bind(operations.TOP_UP, top_up),
    bind(operations.BUY_KEY, buy),
    bind(operations.LIST_PAYMENTS, list_payments),
    bind(operations.GET_PAYMENT, get_payment),
    bind(operations.GET_X402, well_known),
    bind(operations.LIST_GOODS, goods),
    bind(operations.LIST_RATES, rates),
)
