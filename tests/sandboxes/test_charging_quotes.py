"""A quote is a promise: whoever names it in time pays its rates, once, for exactly what was asked."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from sandboxer.backends.contract import Resources
from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, NotFound, ProvisionFailed, QuoteUnusable
from sandboxer.kernel.values import new_id
from sandboxer.money import pricing, quotes
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import boosts, creation, inspection, lifetime, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, fund, paying, settled
from tests.support.clock import ManualClock
from tests.support.sandboxes import ALICE, BOB, OpenPlatform

CHEAP = {**RATES, "running_msats": 500}
DEAR = {**RATES, "running_msats": 9000}


async def ask(platform: Platform, caller: Caller = ALICE, resources: Resources | None = None) -> str:
    """As the route does, for the default profile as it is."""
    profile = platform.sandboxes.profiles.get(platform.settings.default_profile)
    now, size = platform.clock.now(), size_of(resources or profile.resources)
    quote = pricing.quote(profile.id, size, timedelta(hours=1), platform.pricing, now=now)
    given = quotes.GivenQuote(id=new_id("quo"), account=caller.account, quote=quote)
    await platform.store.write(lambda conn: quotes.give(conn, given))
    return given.id


async def test_a_quote_s_rates_hold_though_prices_went_up(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, rates=CHEAP) as platform:
        quote = await ask(platform)
    async with paying(open_one, sats=1000, rates=DEAR) as platform:
        clock.advance(timedelta(minutes=9))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        assert (sandbox.terms.card.running, sandbox.terms.quote_id) == (500, quote)
        clock.advance(timedelta(seconds=100))
        assert (await settled(platform)).posted == 1000 - 50
        other = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert other.terms.card.running == 9000
    # A restart forgets nothing of it.
    async with paying(open_one, rates=DEAR) as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).terms == sandbox.terms


async def test_a_quote_is_used_once(open_one: OpenPlatform) -> None:
    async with paying(open_one, sats=10_000) as platform:
        quote = await ask(platform)
        await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        with pytest.raises(QuoteUnusable) as refused:
            await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        assert refused.value.facts["reason"] == "quote_used"
        assert len((await inspection.list_sandboxes(platform.sandboxes, ALICE)).records) == 1


async def test_a_quote_that_came_to_nothing_can_be_used_again(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with paying(open_one, sats=10_000) as platform:
        quote = await ask(platform)
        backend.fail_next("provision", ProvisionFailed(step="boot", why="no luck"))
        with pytest.raises(ProvisionFailed):
            await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        made = await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        assert made.terms.quote_id == quote


async def test_an_expired_quote_is_refused_and_later_forgotten(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=10_000) as platform:
        quote = await ask(platform)
        clock.advance(timedelta(minutes=10))
        with pytest.raises(QuoteUnusable) as refused:
            await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
        assert refused.value.facts["reason"] == "quote_expired"
        clock.advance(timedelta(days=2))
        await ask(platform)
        with pytest.raises(NotFound):
            await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)


async def test_a_quote_is_remembered_as_long_as_its_sandbox_lives(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1_000_000) as platform:
        quote = await ask(platform)
        sandbox = await creation.create(platform.sandboxes, CreateRequest(quote_id=quote, ttl="12h"), ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(days=3))
        await ask(platform)
        found = await platform.store.read(lambda conn: quotes.find(conn, quote, ALICE.account))
        assert found.used_by == sandbox.id
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        quote_of, now = found.quote, found.quote.quoted_at
        fitting = {"profile": quote_of.profile, "size": quote_of.size, "now": now}
        with pytest.raises(QuoteUnusable) as refused:
            await platform.store.write(lambda conn: quotes.take(conn, found, "sbx_other", **fitting))
        assert refused.value.facts["reason"] == "quote_used"
        await ask(platform)
        with pytest.raises(NotFound):
            await platform.store.read(lambda conn: quotes.find(conn, quote, ALICE.account))


async def test_a_quote_for_something_else_is_refused(open_one: OpenPlatform) -> None:
    async with paying(open_one, sats=10_000) as platform:
        quote = await ask(platform)
        bigger = CreateRequest(quote_id=quote, resources=WantedResources(memory_mb=2048))
        for request in (bigger, CreateRequest(quote_id=quote, profile="profile.build")):
            with pytest.raises(QuoteUnusable) as refused:
                await creation.create(platform.sandboxes, request, ALICE)
            assert refused.value.facts["reason"] == "quote_mismatch"
        # Nothing was used up by asking in vain.
        assert await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)


async def test_someone_else_s_quote_is_unknown(open_one: OpenPlatform) -> None:
    async with paying(open_one, sats=10_000) as platform:
        await fund(platform, 1000, id="bob", account="bob")
        quote = await ask(platform)
        with pytest.raises(NotFound):
            await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), BOB)


async def test_an_extension_may_take_a_quote_and_pays_its_rates_from_then_on(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE)
        clock.advance(timedelta(seconds=100))
    async with paying(open_one, rates=CHEAP) as platform:
        quote = await ask(platform)
        longer = await lifetime.change_ttl(platform.sandboxes, sandbox.id, "30m", ALICE, quote_id=quote)
        assert longer.terms == replace(sandbox.terms, card=longer.terms.card, quote_id=quote)
        clock.advance(timedelta(seconds=100))
        assert (await settled(platform)).posted == 1000 - 100 - 50
        with pytest.raises(QuoteUnusable):
            await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)


async def test_a_boost_that_took_a_quote_of_its_own_ends_at_the_rates_promised_before(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, rates={**CHEAP, "vcpu_msats": 100}, sats=10_000) as platform:
        created = CreateRequest(ttl="1h", quote_id=await ask(platform))
        sandbox = await creation.create(platform.sandboxes, created, ALICE)
        more = await boosts.boost(platform.sandboxes, sandbox.id, ALICE, vcpus=4)
        quote = await ask(platform, resources=more.resources)
        await lifetime.change_ttl(platform.sandboxes, sandbox.id, "30m", ALICE, quote_id=quote)
        less = await boosts.unboost(platform.sandboxes, sandbox.id, ALICE)
        assert (less.terms.card, less.terms.quote_id) == (sandbox.terms.card, quote)


async def test_a_quote_is_not_taken_by_what_grew_since_it_was_checked(open_one: OpenPlatform) -> None:
    """An extension at a quote's rates checked it, a boost came between: four CPUs at the price of one."""
    async with paying(open_one, rates={**CHEAP, "vcpu_msats": 100}, sats=10_000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE)
        repository = platform.sandboxes.repository
        quote = await ask(platform)
        promised = await repository.promised(sandbox, quote)
        more = await boosts.boost(platform.sandboxes, sandbox.id, ALICE, vcpus=4)
        with pytest.raises(QuoteUnusable) as refused:
            await repository.amend(
                sandbox.id,
                kind="sandbox.ttl_extended",
                actor="test",
                reason="test",
                decide=lambda one: {
                    "terms": replace(one.terms, card=promised.card, quote_id=promised.quote_id)
                },
            )
        assert refused.value.facts["reason"] == "quote_mismatch"
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).terms == more.terms
        assert (await settled(platform)).flow.rate == more.terms.card.running


async def test_a_boost_and_an_extension_at_once_do_not_undo_each_other(open_one: OpenPlatform) -> None:
    async with paying(open_one, rates={**CHEAP, "vcpu_msats": 100}, sats=10_000) as platform:
        sandbox = await creation.create(
            platform.sandboxes, CreateRequest(ttl="1h", quote_id=await ask(platform)), ALICE
        )
        quote = await ask(platform)
        for _ in range(4):
            boost = asyncio.create_task(boosts.boost(platform.sandboxes, sandbox.id, ALICE, vcpus=4))
            extend = lifetime.change_ttl(platform.sandboxes, sandbox.id, "1m", ALICE, quote_id=quote)
            with contextlib.suppress(QuoteUnusable):
                await extend
            more = await boost
            assert more.resources.vcpus == 4
            now = await platform.sandboxes.visible(sandbox.id, ALICE)
            assert (await settled(platform)).flow.rate == now.terms.card.running == 900
            await boosts.unboost(platform.sandboxes, sandbox.id, ALICE)
            assert (await settled(platform)).flow.rate == 600
            quote = await ask(platform)


async def test_two_creates_at_once_cannot_both_have_one_quote(open_one: OpenPlatform) -> None:
    async with paying(open_one, sats=10_000, warm_pool={"profile.agent-dev": 2}) as platform:
        quote = await ask(platform)

        async def attempt() -> bool:
            try:
                await creation.create(platform.sandboxes, CreateRequest(quote_id=quote), ALICE)
            except QuoteUnusable:
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt()) for _ in range(6)]
        assert sum(task.result() for task in tasks) == 1


async def test_an_account_has_so_many_open_quotes_and_no_more(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1000) as platform:
        first = await ask(platform)
        for _ in range(quotes.MOST - 1):
            await ask(platform)
        with pytest.raises(Conflict, match="100 quotes"):
            await ask(platform)
        # Another account has its own; a used one makes room, and so do expired ones.
        await ask(platform, BOB)
        await creation.create(platform.sandboxes, CreateRequest(quote_id=first), ALICE)
        await ask(platform)
        clock.advance(timedelta(days=1))
        for _ in range(quotes.MOST):
            await ask(platform)
