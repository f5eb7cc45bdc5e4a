"""Each price service against a local server that speaks its shape, well and badly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import httpx
import pytest

from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import InvalidRequest, NoRate
from sandboxer.payments import rate_sources as rate_book
from sandboxer.payments.rate_sources import SOURCES, Asking, RateCache, source_named
from sandboxer.payments.rates import RatePolicy, Sighting
from tests.payments.oracle.price_server import Market, price_server

ALL = tuple(SOURCES)


class MovingClock:
    """Now as the test says; sleeping takes no time but lets others run."""

    def __init__(self, now: datetime | None = None) -> None:
        self.moment = now or datetime.now(UTC)
        self.slept: list[timedelta] = []
        self.may_wake = asyncio.Event()

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, delay: timedelta) -> None:
        self.slept.append(delay)
        await self.may_wake.wait()
        self.may_wake.clear()
        self.moment += delay


@pytest.fixture
async def market() -> AsyncIterator[Market]:
    async with price_server(Market(now=int(time.time()))) as serving:
        yield serving


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as opened:
        yield opened


def asking(market: Market, client: httpx.AsyncClient, *names: str) -> Asking:
    sources = [source_named(text) for text in market.sources(*(names or ALL))]
    # A busy machine must not look like a service that is slow.
    patience = 0.5 if "slow" in market.broken.values() else 30.0
    return Asking(sources, client, SystemClock(), timeout_s=patience)


async def look(market: Market, client: httpx.AsyncClient, name: str, *assets: str) -> list[Sighting]:
    return await asking(market, client, name).look(assets)


@pytest.mark.parametrize("name", ALL)
async def test_each_service_is_read_to_the_last_digit(
    market: Market, client: httpx.AsyncClient, name: str
) -> None:
    market.prices["BTC"] = "60000.123456789012345678"
    (said,) = await look(market, client, name, "BTC")
    assert said.price == Decimal("60000.123456789012345678")
    assert (said.source, said.asset) == (name, "BTC")
    assert said.unit == ("USDT" if name == "binance" else "USD")


@pytest.mark.parametrize("name", ["coingecko", "coinbase", "kraken", "binance"])
async def test_each_service_tells_every_asset_it_lists(
    market: Market, client: httpx.AsyncClient, name: str
) -> None:
    words = SOURCES[name].words
    said = await look(market, client, name, *words)
    assert {s.asset: str(s.price) for s in said} == {asset: market.prices[asset] for asset in words}


async def test_coingecko_is_asked_once_for_all(market: Market, client: httpx.AsyncClient) -> None:
    await look(market, client, "coingecko", "BTC", "LTC", "XMR")
    assert len(market.asked) == 1


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "how", ["garbage", "error", "redirect", "deep", "empty", "nan", "negative", "slow", "huge"]
)
async def test_a_service_that_misbehaves_is_silent_and_holds_nobody_up(
    market: Market, client: httpx.AsyncClient, name: str, how: str
) -> None:
    market.broken[name] = how
    began = time.monotonic()
    assert await look(market, client, name, "BTC") == []
    assert time.monotonic() - began < 20


async def test_a_service_that_is_gone_is_silent(client: httpx.AsyncClient) -> None:
    gone = Asking([source_named("kraken=http://127.0.0.1:1")], client, SystemClock())
    assert await gone.look({"BTC"}) == []


async def test_a_rate_is_the_median_of_those_who_answer(market: Market, client: httpx.AsyncClient) -> None:
    market.own = {("coinbase", "BTC"): "60010", ("kraken", "BTC"): "59990", ("mempool", "BTC"): "60000"}
    rates = RateCache(asking(market, client, "coinbase", "kraken", "mempool"), SystemClock())
    rate = await rates.usd("BTC")
    assert rate.usd == Decimal("60000")
    assert rate.sources == ("coinbase", "kraken", "mempool")


async def test_with_all_but_one_broken_there_is_no_rate(market: Market, client: httpx.AsyncClient) -> None:
    market.broken = dict.fromkeys(ALL[1:], "error")
    with pytest.raises(NoRate):
        await RateCache(asking(market, client), SystemClock()).usd("BTC")


async def test_what_services_dated_long_ago_does_not_count(market: Market, client: httpx.AsyncClient) -> None:
    market.age_s = 3600
    with pytest.raises(NoRate):
        await RateCache(asking(market, client, "coingecko", "mempool"), SystemClock()).usd("BTC")


async def test_prices_in_tether_count_only_beside_a_rate_of_tether(
    market: Market, client: httpx.AsyncClient
) -> None:
    market.own["binance", "BTC"] = "60060.1602"
    one = RatePolicy(quorum={"BTC": 3}, quorum_default=2)
    full = RateCache(asking(market, client, "coinbase", "kraken", "binance"), SystemClock(), one)
    assert (await full.usd("BTC")).sources == ("binance", "coinbase", "kraken")
    # Only one of two needed sources tells the price of USDT: Binance does not count.
    bare = RateCache(asking(market, client, "coinbase", "mempool", "binance"), SystemClock(), one)
    with pytest.raises(NoRate):
        await bare.usd("BTC")


async def test_an_asset_nobody_lists_has_no_rate(market: Market, client: httpx.AsyncClient) -> None:
    with pytest.raises(NoRate):
        await RateCache(asking(market, client), SystemClock()).usd("EUR")
    assert market.asked == []


async def test_sbtc_and_usdcx_are_asked_for_by_what_they_are_worth(
    market: Market, client: httpx.AsyncClient
) -> None:
    rates = RateCache(asking(market, client), SystemClock())
    assert (await rates.usd("SBTC")).asset == "BTC"
    assert (await rates.usd("USDCX")).asset == "USDC"
    assert {"SBTC", "USDCX", "XMR"} <= set(rates.assets)
    assert "USDT" not in rates.assets


async def test_callers_of_one_moment_share_one_round(market: Market, client: httpx.AsyncClient) -> None:
    rates = RateCache(asking(market, client, "coingecko", "mempool"), SystemClock())
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(rates.usd("BTC"))
    assert len(market.asked) == 2


async def test_when_sources_fail_they_are_left_alone_for_a_moment_and_old_words_serve(
    market: Market, client: httpx.AsyncClient
) -> None:
    clock = MovingClock()
    sources = [source_named(text) for text in market.sources("coingecko", "mempool")]
    rates = RateCache(Asking(sources, client, clock), clock)
    first = await rates.usd("BTC")
    market.broken = {"coingecko": "error", "mempool": "error"}
    clock.moment += timedelta(minutes=5)
    assert (await rates.usd("BTC")).usd == first.usd
    clock.moment += timedelta(minutes=6)
    for _ in range(10):
        with pytest.raises(NoRate):
            await rates.usd("BTC")
    # Once for the first rate, once when it grew old, once when it was too old.
    assert len(market.asked) == 6
    market.broken, market.now = {}, int(clock.moment.timestamp())
    clock.moment += rate_book.PAUSE
    assert (await rates.usd("BTC")).usd == first.usd


async def test_the_background_asks_only_while_somebody_wants_to_know(
    market: Market, client: httpx.AsyncClient
) -> None:
    clock = MovingClock()
    rates = RateCache(
        Asking([source_named(market.sources("mempool")[0])], client, clock),
        clock,
        RatePolicy(quorum_default=1),
    )
    running = asyncio.create_task(rates.run())
    try:
        await asyncio.sleep(0)
        assert clock.slept == []
        await rates.usd("BTC")
        for _ in range(40):
            clock.may_wake.set()
            await _until(lambda: not clock.may_wake.is_set() or not rates._wanted.is_set())
        await _until(lambda: not rates._wanted.is_set())
        # Five minutes, every half minute; then quiet.
        assert 8 <= len(market.asked) <= 12
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _until(true: object) -> None:
    async with asyncio.timeout(5):
        while not true():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_several_assets_are_asked_for_in_one_round(market: Market, client: httpx.AsyncClient) -> None:
    rates = RateCache(asking(market, client, "coingecko"), SystemClock(), RatePolicy(quorum_default=1))
    await rates.warm(rates.assets)
    for asset in rates.assets:
        await rates.usd(asset)
    assert len(market.asked) == 1


@pytest.mark.parametrize("text", ["nobody", "kraken=ftp://x"])
def test_a_source_that_is_not_known_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest):
        source_named(text)
