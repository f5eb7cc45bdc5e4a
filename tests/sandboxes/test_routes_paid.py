"""What a provider charges is paid by whoever had the sandbox, whatever led it there and whatever it says."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from sandboxer.accounts import records as accounts
from sandboxer.backends.contract import Order
from sandboxer.backends.reports import CostEstimate, CostPart
from sandboxer.backends.scripted import Scripted
from sandboxer.hosts.routes.records import Verdict
from sandboxer.kernel.errors import QuoteUnusable
from sandboxer.kernel.values import new_id
from sandboxer.money import pricing, quotes
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.sandboxes.use_cases.routes import explain_route
from sandboxer.wiring import Platform
from tests.support.charging import RATES, fund, settled
from tests.support.clock import ManualClock
from tests.support.routes import BROKEN, FIRST, PAID, SECOND, Open, failing
from tests.support.sandboxes import ALICE

NOTHING = {"rates": dict.fromkeys(RATES, 0)}
# 0.36 USD an hour at 100,000 USD are 360 sats an hour.
INFRASTRUCTURE = 100


async def test_where_the_first_costs_nothing_the_next_is_paid_all_the_same(
    open_with: Open, clock: ManualClock
) -> None:
    first, second = failing(FIRST, BROKEN), Scripted(name=SECOND, usd_per_hour="0.36")
    async with open_with(first, second, **PAID, pricing=NOTHING) as platform:
        await fund(platform, 100_000, id="first")
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        assert (made.backend, made.terms.card.running) == (SECOND, INFRASTRUCTURE)
        clock.advance(timedelta(seconds=1000))
        assert (await settled(platform)).posted == 100_000 - 100


async def test_where_the_next_costs_nothing_nothing_stays_held_for_the_first(
    open_with: Open, clock: ManualClock
) -> None:
    first, second = failing(FIRST, BROKEN, usd_per_hour="0.36"), Scripted(name=SECOND)
    async with open_with(first, second, **PAID, pricing=NOTHING) as platform:
        await fund(platform, 100_000, id="first")
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        assert (made.backend, made.terms.card.running) == (SECOND, 0)
        clock.advance(timedelta(seconds=1000))
        bucket = await settled(platform)
        assert (bucket.posted, bucket.held) == (100_000, 0)


async def test_what_goes_on_for_nothing_is_charged_no_more(open_with: Open, clock: ManualClock) -> None:
    backend = Scripted(name=FIRST)
    async with open_with(backend, charging=True) as platform:
        await fund(platform, 100_000, id="first")
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert made.terms.card.running > 0
    async with open_with(backend, charging=True, free_profiles=[made.profile]) as platform:
        quote = await _quoted(platform)
        await lifetime.change_ttl(platform.sandboxes, made.id, "10m", ALICE, quote_id=quote)
        before = await settled(platform)
        clock.advance(timedelta(seconds=1000))
        await lifetime.destroy(platform.sandboxes, made.id, ALICE)
        clock.advance(timedelta(seconds=1000))

        after = await settled(platform)
        assert (after.posted, after.flow.rate) == (before.posted, 0)


class Lying(Scripted):
    """Its provider says nonsense when it is asked for a price."""

    def __init__(self, name: str, says: Decimal | Exception) -> None:
        super().__init__(name=name)
        self.says = says

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        if isinstance(self.says, Exception):
            raise self.says
        return CostEstimate(unit="usd", parts=(CostPart(what="hour", amount=self.says),))


@pytest.mark.parametrize(
    "says",
    [
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("-1"),
        Decimal("1e30"),
        # The dearest that there is, without the fee.
        Decimal("3600000"),
        ConnectionResetError("reset by peer"),
        ValueError("no JSON"),
    ],
    ids=str,
)
async def test_a_provider_that_names_no_price_stands_in_nobody_s_way(
    open_with: Open, says: Decimal | Exception
) -> None:
    async with open_with(Scripted(name=FIRST), Lying(SECOND, says), **PAID) as platform:
        await fund(platform, 100_000, id="first")
        assert (await creation.create(platform.sandboxes, CreateRequest(), ALICE)).backend == FIRST
        seen = (await explain_route(platform.sandboxes, CreateRequest(), ALICE)).considered
        told = {one.backend: one for one in seen}[SECOND]
        assert (told.verdict, told.rate_msats_per_s) == (Verdict.REFUSED, None)
        assert "what it costs" in told.reason or "no price" in told.reason


class Slow(Lying):
    """Never says what it costs."""

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        self.calls.append(("estimate_cost", ""))
        return await asyncio.Future()


async def test_nobody_waits_for_the_price_of_a_backend_that_is_not_asked(open_with: Open) -> None:
    slow = Slow(SECOND, Decimal(1))
    async with open_with(Scripted(name=FIRST), slow, **{**PAID, "routing": {}}) as platform:
        await fund(platform, 100_000, id="first")
        assert (await creation.create(platform.sandboxes, CreateRequest(), ALICE)).backend == FIRST
        assert ("estimate_cost", "") not in slow.calls


async def test_a_quote_without_a_provider_s_part_does_not_end_it(open_with: Open) -> None:
    first, second = failing(FIRST, BROKEN), Scripted(name=SECOND, usd_per_hour="36")
    async with open_with(first, second, **PAID) as platform:
        await fund(platform, 100_000, id="first")
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        dear = made.terms.card.running
        quote = await _quoted(platform)
        with pytest.raises(QuoteUnusable, match="provider"):
            await lifetime.check_ttl(platform.sandboxes, made.id, "10m", ALICE, quote_id=quote)
        with pytest.raises(QuoteUnusable, match="provider"):
            await lifetime.change_ttl(platform.sandboxes, made.id, "10m", ALICE, quote_id=quote)

        after = await platform.sandboxes.visible(made.id, ALICE)
        assert after.terms.card.running == dear
        # It is good for an ordinary one still.
        platform.sandboxes.routes.observed.made(FIRST, 1.0)
        other = await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        assert (other.backend, other.terms.quote_id) == (FIRST, quote)


async def test_a_tier_does_not_pay_what_a_provider_charges(open_with: Open, clock: ManualClock) -> None:
    provider = Scripted(name=FIRST, usd_per_hour="36")
    async with open_with(provider, **PAID) as platform:
        await fund(platform, 100_000, id="first")
        now = clock.now()

        def entitle(conn):  # type: ignore[no-untyped-def]
            accounts.ensure(conn, "alice", actor="test", now=now)
            until = now + timedelta(days=30)
            return accounts.entitle(
                conn, "alice", tier=1, until=until, actor="test", reason="bought", now=now
            )

        await platform.store.write(entitle)
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        clock.advance(timedelta(seconds=100))
        assert (await settled(platform)).posted == 100_000 - 1001
        assert not (await platform.sandboxes.visible(made.id, ALICE)).terms.is_entitled


async def _quoted(platform: Platform) -> str:
    profile = platform.sandboxes.profiles.get(platform.settings.default_profile)
    now, hour = platform.clock.now(), timedelta(hours=1)
    quote = pricing.quote(profile.id, size_of(profile.resources), hour, platform.pricing, now=now)
    given = quotes.GivenQuote(id=new_id("quo"), account=ALICE.account, quote=quote)
    await platform.store.write(lambda conn: quotes.give(conn, given))
    return given.id
