"""Routes of prices: for anyone to read, and a quote for one sandbox before it is created."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.limits import requests_per_minute
from sandboxer.backends.contract import Resources
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.requests import platform_of
from sandboxer.kernel.clock import format_duration, parse_duration
from sandboxer.kernel.ids import new_id
from sandboxer.money import pricing, quotes
from sandboxer.sandboxes.charges.charging import size_of
from sandboxer.sandboxes.requests import WantedResources, wanted_resources
from sandboxer.wire import pricing as wire
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.pricing import AskQuote, Quote
from sandboxer.wiring import Platform


async def get_pricing(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    return _rendered(asked.request)


async def for_agents(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    return _rendered(asked.request)


async def ask(asked: Asked[NoParameters, NoParameters, AskQuote]) -> Quote:
    platform, who = asked.platform, asked.caller
    profile = platform.sandboxes.dependencies.profiles.get(
        asked.body.profile or platform.settings.default_profile
    )
    resources = wanted_resources(WantedResources(**asked.body.resources.model_dump()), profile)
    duration = parse_duration(asked.body.duration, field="duration")
    quote = pricing.quote(
        profile.id, size_of(resources), duration, platform.pricing, now=platform.clock.now()
    )
    given = quotes.GivenQuote(id=new_id("quo"), account=who.account, quote=quote)
    await platform.store.write(lambda conn: quotes.give(conn, given))
    return wire.Quote(
        id=given.id,
        profile=profile.id,
        vcpus=resources.vcpus,
        memory_mb=resources.memory_mb,
        disk_mb=resources.disk_mb,
        duration=format_duration(duration),
        sats=quote.sats,
        running_msats=quote.card.running,
        frozen_msats=quote.card.frozen,
        stored_msats=quote.card.stored,
        egress_gb_msats=quote.egress_gb_msats,
        quoted_at=quote.quoted_at,
        expires_at=quote.expires_at,
    )


def _rendered(request: Request) -> Response:
    """Renders prices once for each state of the networks: they stay the same as long as the server runs, and
    anyone may ask.
    """
    state, rails = request.app.state, _rails(platform_of(request))
    if getattr(state, "pricing", (None, ""))[0] != rails:
        prices = _all(platform_of(request)).model_copy(update=rails)
        state.pricing = rails, prices.model_dump_json()
    return Response(state.pricing[1], media_type="application/json")


def _rails(platform: Platform) -> dict[str, list[wire.PaymentNetwork] | list[wire.PaymentCoin]]:
    coins = platform.payments.invoices.why_off()
    return {
        "networks": _networks(platform),
        "coins": [
            wire.PaymentCoin(coin=coin, is_on=why is None, reason=why) for coin, why in sorted(coins.items())
        ],
    }


def _networks(platform: Platform) -> list[wire.PaymentNetwork]:
    x402 = platform.payments.x402
    if x402 is None:
        return []
    found = {way.network: x402.ways.why_off(way.network) for way in x402.ways}
    return [wire.PaymentNetwork(network=name, is_on=why is None, reason=why) for name, why in found.items()]


def _all(platform: Platform) -> wire.Pricing:
    prices = platform.pricing
    return wire.Pricing(
        rates=wire.Rates(**{name: getattr(prices.rates, name) for name in wire.Rates.model_fields}),
        profiles=[
            _profile(profile.id, profile.resources, prices) for profile in platform.sandboxes.profiles()
        ],
        tiers=[_tier(price, platform) for price in pricing.all_tier_prices(prices.tiers)],
    )


def _profile(name: str, resources: Resources, prices: pricing.Pricing) -> wire.ProfilePrice:
    card = pricing.rate_card(name, size_of(resources), prices)
    return wire.ProfilePrice(
        profile=name,
        is_free=name in prices.free_profiles,
        running_msats=card.running,
        frozen_msats=card.frozen,
        stored_msats=card.stored,
    )


def _tier(price: pricing.TierPrice, platform: Platform) -> wire.TierPrice:
    gives = pricing.entitlement(price.tier, platform.pricing.tiers)
    return wire.TierPrice(
        tier=price.tier,
        months=price.months,
        usd_cents=price.cents,
        discount_percent=price.discount_thousandths / 10,
        # Counted as it will be charged: never less than without a tier.
        requests_per_minute=requests_per_minute(price.tier, policy=platform.limits) or 0,
        slots=gives.slots,
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.GET_PRICING, get_pricing),
    bind(operations.GET_PRICING_FOR_AGENTS, for_agents),
    bind(operations.ASK_QUOTE, ask),
)
