"""Routes of prices, and of payments by x402: credit and keys paid in the request, past payments, what is for
sale, and what coins are worth.

Anyone may read prices and rates, and a caller may ask for a quote before a sandbox is created. Credit can be
bought for the caller's account or for any whose public id is known; a tier for some months comes with a key
to use it. A past payment is visible to its account, or to whoever knows its id, which cannot be guessed. The
catalogue is where agents that know x402 look for it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import use_cases
from sandboxer.accounts.limits import generations, requests_per_minute
from sandboxer.accounts.records import Payable
from sandboxer.backends.contract import Resources
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedQuery, bind
from sandboxer.edges.http.idempotency import Bind
from sandboxer.edges.http.purchases import (
    asking,
    is_stranger,
    known_account,
    new_key,
    presented_in,
    purchase,
    request_hash,
    settled,
    settled_headers,
    shown,
    taken,
    x402_of,
)
from sandboxer.edges.http.requests import platform_of
from sandboxer.kernel.clock import format_duration, parse_duration
from sandboxer.kernel.errors import InvalidRequest, NoRate, PaymentNeeded
from sandboxer.kernel.values import new_id
from sandboxer.money import pricing, quotes
from sandboxer.money.pricing import tier_price
from sandboxer.payments import records
from sandboxer.payments.credits import account_to_pay
from sandboxer.payments.goods import check_sale
from sandboxer.payments.lifecycle import State
from sandboxer.payments.rates import Rates, sats_for_cents
from sandboxer.payments.records import Purpose
from sandboxer.payments.x402.presented import Presented, Wanted
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.requests import WantedResources, wanted_resources
from sandboxer.wire import pricing as wire_pricing
from sandboxer.wire.invoices import RateLine, RateList
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.payments import Bought, BoughtKey, BuyKey, Goods, Payment, PaymentPage, TopUp, WellKnown
from sandboxer.wiring import Platform


async def top_up(asked: AskedBody[TopUp]) -> Response:
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
    if (presented := presented_in(asked.request)) is None:
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
    was_stranger = is_stranger(request)

    async def act(bind: Bind | None) -> Response:
        async with (
            asking(request, payable, wanted.least_sats),
            taken(request, presented, wanted) as hand,
        ):
            payment = await settled(request, hand)
            is_payer = was_stranger and hand.is_new and not is_gift
            key = await new_key(request, payment, is_payer=is_payer)
            paid_for = await use_cases.get(platform_of(request).store, payment.account)
            body = Bought.model_construct(payment=shown(payment), account=paid_for.public_id, key=key)
            status = 201 if payment.state in (State.CONFIRMED, State.MEMPOOL) else 202
            answer = json_response(body, status)
            answer.headers.update(settled_headers(payment))
            return answer

    return await purchase(request, presented, act)


async def buy(asked: AskedBody[BuyKey]) -> Response:
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
    if (presented := presented_in(asked.request)) is None:
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
            payment = await settled(asked.request, hand)
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


async def list_payments(asked: AskedQuery[operations.ListPaymentsQuery]) -> PaymentPage:
    account = asked.caller.account
    found = await asked.platform.store.read(
        lambda conn: records.page(conn, account, cursor=asked.query.cursor, limit=asked.query.limit)
    )
    following = found[-1].id if len(found) == asked.query.limit else None
    return PaymentPage.model_construct(payments=[shown(one) for one in found], next_cursor=following)


async def get_payment(asked: Asked[operations.PaymentPath]) -> Payment:
    return shown(await asked.platform.store.read(lambda conn: records.load(conn, asked.path.payment_id)))


async def well_known(asked: Asked) -> WellKnown:
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


async def goods(asked: Asked) -> Goods:
    x402 = asked.platform.payments.x402
    items = [] if x402 is None else await x402.asking.for_sale()
    return Goods.model_validate({"items": items})


async def rates(asked: Asked) -> RateList:
    known = asked.platform.payments.rates
    await known.warm(known.assets)
    off = asked.platform.payments.invoices.why_off()
    lines = [(await _line(known, asset)).model_copy(update={"off": off.get(asset)}) for asset in known.assets]
    return RateList(rates=lines)


async def _line(rates: Rates, asset: str) -> RateLine:
    try:
        rate = await rates.usd(asset)
    except NoRate as error:
        return RateLine(asset=asset, usd=None, sources=[], why=str(error.facts.get("why", "")))
    return RateLine(asset=asset, usd=f"{rate.usd:f}", at=rate.at, sources=list(rate.sources))


async def ask_quote(asked: AskedBody[wire_pricing.AskQuote]) -> wire_pricing.Quote:
    platform, who = asked.platform, asked.caller
    profile = platform.sandboxes.profiles.get(asked.body.profile or platform.settings.default_profile)
    resources = wanted_resources(WantedResources(**asked.body.resources.model_dump()), profile)
    duration = parse_duration(asked.body.duration, field="duration")
    quote = pricing.quote(
        profile.id, size_of(resources), duration, platform.pricing, now=platform.clock.now()
    )
    given = quotes.GivenQuote(id=new_id("quo"), account=who.account, quote=quote)
    await platform.store.write(lambda conn: quotes.give(conn, given))
    return from_record(
        wire_pricing.Quote,
        quote,
        id=given.id,
        profile=profile.id,
        vcpus=resources.vcpus,
        memory_mb=resources.memory_mb,
        disk_mb=resources.disk_mb,
        duration=format_duration(duration),
        running_msats=quote.card.running,
        frozen_msats=quote.card.frozen,
        stored_msats=quote.card.stored,
        is_charged=platform.settings.is_charged,
    )


async def get_pricing(asked: Asked) -> Response:
    # Rendered once for each state of the networks: prices stay the same as long as the server runs, and
    # anyone may ask.
    state, rails = asked.request.app.state, _rails(asked.platform)
    if getattr(state, "pricing", (None, ""))[0] != rails:
        prices = _all_prices(asked.platform).model_copy(update=rails)
        state.pricing = rails, prices.model_dump_json()
    return Response(state.pricing[1], media_type="application/json")


def _rails(
    platform: Platform,
) -> dict[str, list[wire_pricing.PaymentNetwork] | list[wire_pricing.PaymentCoin]]:
    coins = platform.payments.invoices.why_off()
    return {
        "networks": _networks(platform),
        "coins": [
            wire_pricing.PaymentCoin(coin=coin, is_on=why is None, reason=why)
            for coin, why in sorted(coins.items())
        ],
    }


def _networks(platform: Platform) -> list[wire_pricing.PaymentNetwork]:
    if (x402 := platform.payments.x402) is None:
        return []
    found = {way.network: x402.ways.why_off(way.network) for way in x402.ways}
    return [
        wire_pricing.PaymentNetwork(network=name, is_on=why is None, reason=why)
        for name, why in found.items()
    ]


def _all_prices(platform: Platform) -> wire_pricing.Pricing:
    prices = platform.pricing
    return wire_pricing.Pricing(
        rates=wire_pricing.Rates(
            **{name: getattr(prices.rates, name) for name in wire_pricing.Rates.model_fields}
        ),
        profiles=[
            _profile_price(profile.id, profile.resources, prices)
            for profile in platform.sandboxes.profiles.all()
        ],
        tiers=[_tier_price(price, platform) for price in pricing.all_tier_prices(prices.tiers)],
        is_charged=platform.settings.is_charged,
    )


def _profile_price(name: str, resources: Resources, prices: pricing.Pricing) -> wire_pricing.ProfilePrice:
    card = pricing.rate_card(name, size_of(resources), prices)
    return wire_pricing.ProfilePrice(
        profile=name,
        is_free=name in prices.free_profiles,
        running_msats=card.running,
        frozen_msats=card.frozen,
        stored_msats=card.stored,
    )


def _tier_price(price: pricing.TierPrice, platform: Platform) -> wire_pricing.TierPrice:
    gives = pricing.entitlement(price.tier, platform.pricing.tiers)
    return wire_pricing.TierPrice(
        tier=price.tier,
        months=price.months,
        usd_cents=price.cents,
        discount_percent=price.discount_thousandths / 10,
        # Counted as it will be charged: never less than without a tier.
        requests_per_minute=requests_per_minute(price.tier, policy=platform.limits) or 0,
        slots=gives.slots,
        depth=generations(price.tier, policy=platform.limits),
    )


BINDINGS = (
    bind(operations.TOP_UP, top_up),
    bind(operations.BUY_KEY, buy),
    bind(operations.LIST_PAYMENTS, list_payments),
    bind(operations.GET_PAYMENT, get_payment),
    bind(operations.GET_X402, well_known),
    bind(operations.LIST_GOODS, goods),
    bind(operations.LIST_RATES, rates),
    bind(operations.GET_PRICING, get_pricing),
    bind(operations.GET_PRICING_FOR_AGENTS, get_pricing),
    bind(operations.ASK_QUOTE, ask_quote),
)
