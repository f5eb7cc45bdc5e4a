"""What things cost: for anyone to read, and what one sandbox would cost before it is created."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.limits import requests_per_minute
from sandboxer.backends.contract import Resources
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures, unsigned_failures
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.durations import format_duration, parse_duration
from sandboxer.kernel.ids import new_id
from sandboxer.money import pricing, quotes
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.planning import wanted_resources
from sandboxer.sandboxes.requests import WantedResources
from sandboxer.wire import pricing as wire
from sandboxer.wiring import Platform

router = APIRouter(tags=["pricing"])


@router.get(
    "/v1/pricing",
    operation_id="getPricing",
    response_model=wire.Pricing,
    responses=unsigned_failures(),
    summary="Every price",
)
async def get_pricing(request: Request) -> Response:
    return _rendered(request)


@router.get(
    "/pricing-for-agents.json",
    operation_id="getPricingForAgents",
    response_model=wire.Pricing,
    responses=unsigned_failures(),
    summary="The same, where agents look for it",
)
async def for_agents(request: Request) -> Response:
    return _rendered(request)


@router.post(
    "/v1/quotes",
    operation_id="askQuote",
    status_code=201,
    response_model=wire.Quote,
    responses=failures(404, 409),
    summary="What a sandbox would cost; create and extend may name it and pay these rates",
)
async def ask(request: Request, body: wire.AskQuote) -> Response:
    platform, who = platform_of(request), caller(request)
    profile = platform.sandboxes.room.profiles.get(body.profile or platform.settings.default_profile)
    resources = wanted_resources(WantedResources(**body.resources.model_dump()), profile)
    duration = parse_duration(body.duration, field="duration")
    quote = pricing.quote(
        profile.id, size_of(resources), duration, platform.pricing, now=platform.clock.now()
    )
    given = quotes.GivenQuote(id=new_id("quo"), account=who.account, quote=quote)
    await platform.store.write(lambda conn: quotes.give(conn, given))
    shown = wire.Quote(
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
    return json_response(shown, 201)


def _rendered(request: Request) -> Response:
    """Made once for each state of the networks: prices stand as long as the server, and anyone may ask."""
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
        # As it will be counted: never less than without a tier.
        requests_per_minute=requests_per_minute(price.tier, policy=platform.limits) or 0,
        slots=gives.slots,
    )
