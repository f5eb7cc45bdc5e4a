"""The rates in use are remembered for a minute and refreshed only while somebody wants them.

An operator fixes rates in the settings, or names the services to ask and how many must agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import httpx

from sandboxer.kernel.clock import Clock, parse_duration
from sandboxer.kernel.errors import InvalidRequest, NoRate
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments.oracle.rates import POLICY, SAME_AS, USDT, Rate, RatePolicy, Rates, Sighting, judge
from sandboxer.payments.oracle.sources import SOURCES, Asking, Source, source_named

# A rate is used without asking again for this long.
FRESH_FOR = timedelta(seconds=60)
# Sources that failed are not asked again at once, whoever calls.
PAUSE = timedelta(seconds=5)
# Who asked within this keeps the background refresh alive.
WANTED_FOR = timedelta(minutes=5)
_KNOWN = frozenset({"sources", "quorum", "stale_after", "tolerance"})
# The quorum of every asset that is not named.
ANY = "*"


class RateCache:
    """Rates of several sources. Run `run()` in a task, so that callers seldom wait."""

    def __init__(self, asking: Asking, clock: Clock, policy: RatePolicy = POLICY) -> None:
        self._asking = asking
        self._clock = clock
        self._policy = policy
        self._said: dict[tuple[str, str], Sighting] = {}
        self._asked_at: dict[str, datetime] = {}
        self._wanted_at: dict[str, datetime] = {}
        self._wanted = asyncio.Event()
        # One round of questions at a time: callers of one moment share its answer.
        self._round = asyncio.Lock()

    @property
    def assets(self) -> tuple[str, ...]:
        known = {word for source in self._asking.sources for word in source.words} - {USDT}
        return tuple(sorted(known | {a for a, b in SAME_AS.items() if b in known}))

    async def usd(self, asset: str) -> Rate:
        asset = SAME_AS.get(asset, asset)
        if asset not in self.assets:
            raise NoRate(asset=asset, why="no source knows it")
        await self.warm((asset,))
        return judge(asset, self._said.values(), now=self._clock.now(), policy=self._policy)

    async def warm(self, assets: Iterable[str]) -> None:
        wanted = {SAME_AS.get(asset, asset) for asset in assets} & set(self.assets)
        for asset in wanted:
            self._wanted_at[asset] = self._clock.now()
        self._wanted.set()
        if any(self._is_due(asset, FRESH_FOR) for asset in wanted):
            async with self._round:
                # Somebody else's round may have told all of it.
                if due := {asset for asset in wanted if self._is_due(asset, FRESH_FOR)}:
                    await self._refresh(due)

    async def run(self) -> None:
        """Refreshes what was wanted lately, a little before it grows old; sleeps while nobody asks."""
        while True:
            await self._wanted.wait()
            await self._clock.sleep(FRESH_FOR / 2)
            horizon = self._clock.now() - WANTED_FOR
            wanted = {asset for asset, at in self._wanted_at.items() if at > horizon}
            if not wanted:
                self._wanted.clear()
                continue
            due = {asset for asset in wanted if self._is_due(asset, FRESH_FOR / 2)}
            if due:
                async with self._round:
                    await self._refresh(due)

    def _is_due(self, asset: str, age: timedelta) -> bool:
        asked = self._asked_at.get(asset)
        if asked is None:
            return True
        now = self._clock.now()
        try:
            judge(asset, self._said.values(), now=now, policy=self._policy)
        except NoRate:
            return now >= asked + PAUSE
        return now >= asked + age

    async def _refresh(self, assets: Iterable[str]) -> None:
        assets = set(assets)
        # Prices in USDT need its own.
        for sighting in await self._asking.look(assets | {USDT}):
            self._said[sighting.source, sighting.asset] = sighting
        # Only now: who comes during the round must wait for its answer.
        for asset in assets:
            self._asked_at[asset] = self._clock.now()


class FixedRates:
    """Rates fixed by the operator, for private deployments and machines without a network."""

    def __init__(self, usd: Mapping[str, Decimal], clock: Clock) -> None:
        self._usd = dict(usd)
        self._clock = clock

    @property
    def assets(self) -> tuple[str, ...]:
        return tuple(sorted({*self._usd, *(a for a, b in SAME_AS.items() if b in self._usd)}))

    async def usd(self, asset: str) -> Rate:
        name = asset if asset in self._usd else SAME_AS.get(asset, asset)
        try:
            price = self._usd[name]
        except KeyError:
            raise NoRate(asset=asset, why="the operator wrote none down") from None
        return Rate(asset=name, usd=price, at=self._clock.now(), sources=("fixed",))

    async def warm(self, assets: Iterable[str]) -> None:
        """There is nothing to ask."""


class FirstKnown:
    """Uses the rates of `first`, and those of `then` for assets that `first` does not know."""

    def __init__(self, first: Rates, then: Rates) -> None:
        self._first = first
        self._then = then

    @property
    def assets(self) -> tuple[str, ...]:
        return tuple(sorted({*self._first.assets, *self._then.assets}))

    async def usd(self, asset: str) -> Rate:
        return await (self._first if asset in self._first.assets else self._then).usd(asset)

    async def warm(self, assets: Iterable[str]) -> None:
        await self._then.warm(set(assets) - set(self._first.assets))


@asynccontextmanager
async def open_rates(
    fixed: Mapping[str, str], asked: Mapping[str, Any], clock: Clock
) -> AsyncIterator[Rates]:
    """Open the rates: fixed ones come first, and services are asked only if `asked` names sources."""
    written = fixed_rates(fixed, clock)
    sources, policy = read_sources(asked), read_policy(asked)
    if (fixed and "sources" not in asked) or not sources:
        yield written
        return
    async with httpx.AsyncClient() as client, own_tasks() as tasks:
        repository = RateCache(Asking(sources, client, clock), clock, policy)
        tasks.start(repository.run(), name="rates")
        yield FirstKnown(written, repository)


def fixed_rates(given: Mapping[str, str], clock: Clock) -> FixedRates:
    """Dollars by asset, as the operator wrote them down."""
    try:
        usd = {asset: Decimal(price) for asset, price in given.items()}
    except (InvalidOperation, TypeError):
        raise InvalidRequest(field="fixed_rates", why="each is a number of dollars as text") from None
    if any(not price.is_finite() or price <= 0 for price in usd.values()):
        raise InvalidRequest(field="fixed_rates", why="a rate is above zero")
    return FixedRates(usd, clock)


def read_sources(asked: Mapping[str, Any]) -> list[Source]:
    """All of them, unless some are named: `kraken`, or `kraken=https://mirror.example`."""
    if unknown := sorted(asked.keys() - _KNOWN):
        raise InvalidRequest(field=f"rates.{unknown[0]}", why=f"known are {', '.join(sorted(_KNOWN))}")
    named = asked.get("sources", list(SOURCES))
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise InvalidRequest(field="rates.sources", why="it is a list of names")
    return [source_named(one) for one in named]


def read_policy(asked: Mapping[str, Any]) -> RatePolicy:
    quorum = asked.get("quorum", {})
    if not isinstance(quorum, Mapping) or not all(type(number) is int for number in quorum.values()):
        raise InvalidRequest(field="rates.quorum", why='it is like {"*": 2, "XMR": 2}')
    tolerance = asked.get("tolerance", 30)
    if type(tolerance) is not int or not 0 < tolerance < 1000:
        raise InvalidRequest(field="rates.tolerance", why="it is in thousandths, from 1 to 999")
    stale_after = parse_duration(str(asked.get("stale_after", "10m")), field="rates.stale_after")
    named = {asset: number for asset, number in quorum.items() if asset != ANY}
    return RatePolicy(
        quorum=named, quorum_default=quorum.get(ANY, 2), stale_after=stale_after, tolerance=tolerance
    )
