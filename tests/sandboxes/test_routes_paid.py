"""What a provider charges is paid by whoever had the sandbox, whatever led it there and whatever it says."""

from __future__ import annotations

from datetime import timedelta

from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.values import new_id
from sandboxer.money import pricing, quotes
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
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


async def _quoted(platform: Platform) -> str:
    profile = platform.sandboxes.profiles.get(platform.settings.default_profile)
    now, hour = platform.clock.now(), timedelta(hours=1)
    quote = pricing.quote(profile.id, size_of(profile.resources), hour, platform.pricing, now=now)
    given = quotes.GivenQuote(id=new_id("quo"), account=ALICE.account, quote=quote)
    await platform.store.write(lambda conn: quotes.give(conn, given))
    return given.id
