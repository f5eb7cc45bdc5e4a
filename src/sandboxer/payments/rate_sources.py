"""The shapes in which public price services answer: assets become requests, answers become sightings.

Nothing they say is trusted: what does not have the expected shape raises ValueError, and `Asking` counts
that source as silent.

Asks the price services over HTTP, all at once, none for longer than a few seconds or a few kilobytes.

The rates in use are remembered for a minute and refreshed only while somebody wants them.

An operator fixes rates in the settings, or names the services to ask and how many must agree.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

from sandboxer.kernel.clock import Clock, parse_duration
from sandboxer.kernel.errors import InvalidRequest, NoRate
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.payments.rates import POLICY, SAME_AS, USD, USDT, Rate, RatePolicy, Rates, Sighting, judge

log = logging.getLogger(__name__)
TIMEOUT_S = 5.0
MAX_ANSWER = 64 * 1024
# Reads the price out of an answer, given the service's word for the asset: the price, and its moment if said.
Reader = Callable[[Mapping[str, Any], str], "Said | None"]


class Said(NamedTuple):
    price: Any
    # Unix seconds; None: the moment at which it was asked.
    at: Any = None


@value_class
class Source:
    name: str
    url: str
    # Our asset and the service's word for it.
    words: Mapping[str, str]
    # What to GET for `{word}`; several words in one question are joined by commas.
    path: str
    read: Reader
    is_asked_once: bool = False
    # What its prices are in.
    unit: str = USD

    def asks_for(self, assets: Iterable[str]) -> list[Ask]:
        wanted = {asset: self.words[asset] for asset in sorted(assets) if asset in self.words}
        groups = [wanted] if self.is_asked_once else [{asset: word} for asset, word in wanted.items()]
        return [Ask(self.path.format(word=",".join(words.values())), words) for words in groups if words]

    def sightings(self, answer: Any, words: Mapping[str, str], now: datetime) -> list[Sighting]:
        """Raises ValueError, or another error of what does not have the expected shape."""
        found = []
        for asset, word in words.items():
            if (said := self.read(_mapping(answer), word)) is not None:
                at = now if said.at is None else _moment(said.at)
                price = _price(said.price)
                found.append(Sighting(source=self.name, asset=asset, price=price, unit=self.unit, at=at))
        return found


@brief_value_class
class Ask:
    """One GET, and the words of the assets it is about."""

    path: str
    words: Mapping[str, str]


def _coingecko(answer: Mapping[str, Any], word: str) -> Said | None:
    """A coin it does not know is left out; the others still count."""
    if answer.get(word) is None:
        return None
    entry = _mapping(answer[word])
    return Said(entry["usd"], entry["last_updated_at"])


def _coinbase(answer: Mapping[str, Any], word: str) -> Said:
    data = _mapping(answer["data"])
    _check_pair((data["base"], data["currency"]), (word, "USD"))
    return Said(data["amount"])


def _kraken(answer: Mapping[str, Any], word: str) -> Said:
    if answer["error"]:
        raise ValueError("it answered with an error")
    # The pair comes back under another name than it was asked by: so one pair a request.
    (ticker,) = _mapping(answer["result"]).values()
    return Said(ticker["c"][0])


def _binance(answer: Mapping[str, Any], word: str) -> Said:
    _check_pair(answer["symbol"], word)
    return Said(answer["price"])


def _mempool(answer: Mapping[str, Any], word: str) -> Said:
    return Said(answer["USD"], answer["time"])


def _check_pair(found: object, asked: object) -> None:
    if found != asked:
        raise ValueError("another pair than asked for")


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        source.name: source
        for source in (
            Source(
                name="coingecko",
                url="https://api.coingecko.com",
                words={
                    "BTC": "bitcoin",
                    "LTC": "litecoin",
                    "DOGE": "dogecoin",
                    "XMR": "monero",
                    "STX": "blockstack",
                    "USDC": "usd-coin",
                    "USDT": "tether",
                },
                path="/api/v3/simple/price?ids={word}&vs_currencies=usd&include_last_updated_at=true",
                read=_coingecko,
                is_asked_once=True,
            ),
            Source(
                name="coinbase",
                url="https://api.coinbase.com",
                words={code: code for code in ("BTC", "LTC", "DOGE", "STX", "USDC", "USDT")},
                path="/v2/prices/{word}-USD/spot",
                read=_coinbase,
            ),
            Source(
                name="kraken",
                url="https://api.kraken.com",
                words={
                    "BTC": "XBTUSD",
                    "LTC": "LTCUSD",
                    "DOGE": "XDGUSD",
                    "XMR": "XMRUSD",
                    "STX": "STXUSD",
                    "USDC": "USDCUSD",
                    "USDT": "USDTUSD",
                },
                path="/0/public/Ticker?pair={word}",
                read=_kraken,
            ),
            Source(
                name="binance",
                url="https://api.binance.com",
                words={code: f"{code}USDT" for code in ("BTC", "LTC", "DOGE", "STX", "USDC")},
                path="/api/v3/ticker/price?symbol={word}",
                read=_binance,
                unit=USDT,
            ),
            Source(
                name="mempool",
                url="https://mempool.space",
                words={"BTC": "BTC"},
                path="/api/v1/prices",
                read=_mempool,
            ),
        )
    }
)


def source_named(text: str) -> Source:
    """`kraken`, or `kraken=http://127.0.0.1:8000` for a mirror of it."""
    name, _, url = text.partition("=")
    if (source := SOURCES.get(name)) is None:
        raise InvalidRequest(field="rate_sources", why=f"{name!r} is none of {', '.join(SOURCES)}")
    if url and not url.startswith(("https://", "http://")):
        raise InvalidRequest(field="rate_sources", why=f"{url!r} is not an address of the web")
    return replace(source, url=(url or source.url).rstrip("/"))


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("not an object where one was expected")
    return value


def _price(value: Any) -> Decimal:
    """A number or text with one. Floats never come this far: JSON is read with Decimal."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal) or len(str(value)) > 40:
        raise ValueError("not a price")
    try:
        price = Decimal(value)
    except InvalidOperation:
        raise ValueError("not a price") from None
    if not price.is_finite() or price <= 0:
        raise ValueError("not a price")
    return price


def _moment(value: Any) -> datetime:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**11:
        raise ValueError("not a moment")
    return datetime.fromtimestamp(value, UTC)


class Asking:
    """One round of questions. What fails is silent: the judgement counts who spoke."""

    def __init__(
        self,
        sources: Sequence[Source],
        client: httpx.AsyncClient,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.sources = tuple(sources)
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s

    async def look(self, assets: Iterable[str]) -> list[Sighting]:
        wanted = frozenset(assets)
        found: list[Sighting] = []
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                for ask in source.asks_for(wanted):
                    group.create_task(self._ask(source, ask, found))
        return found

    async def _ask(self, source: Source, ask: Ask, found: list[Sighting]) -> None:
        try:
            # A bound on the whole exchange: a server that drips bytes must not hold a quote open.
            async with asyncio.timeout(self._timeout_s):
                body = await self._get(source.url + ask.path)
            answer = json.loads(body, parse_float=Decimal)
            found.extend(source.sightings(answer, ask.words, self._clock.now()))
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            TimeoutError,
            ValueError,
            LookupError,
            TypeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            log.info("the price source %s is silent: %s", source.name, error or type(error).__name__)

    async def _get(self, url: str) -> bytes:
        headers = {"accept": "application/json"}
        async with self._client.stream("GET", url, headers=headers, follow_redirects=False) as answer:
            if answer.status_code != 200:
                raise ValueError(f"it answered {answer.status_code}")
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise ValueError("its answer is too long")
            return body


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
        if (asset := SAME_AS.get(asset, asset)) not in self.assets:
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
            if not (wanted := {asset for asset, at in self._wanted_at.items() if at > horizon}):
                self._wanted.clear()
                continue
            if due := {asset for asset in wanted if self._is_due(asset, FRESH_FOR / 2)}:
                async with self._round:
                    await self._refresh(due)

    def _is_due(self, asset: str, age: timedelta) -> bool:
        if (asked := self._asked_at.get(asset)) is None:
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
            raise NoRate(asset=asset, why="the operator has set none") from None
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
    fixed: Mapping[str, str], asked: Mapping[str, Any], clock: Clock, *, is_charged: bool = True
) -> AsyncIterator[Rates]:
    """Open the rates: fixed ones come first, and services are asked only if `asked` names sources.

    Where nothing is charged and nobody said otherwise, nobody outside is asked.
    """
    written = fixed_rates(fixed, clock)
    sources, policy = read_sources(asked), read_policy(asked)
    if (fixed and "sources" not in asked) or not sources or not (is_charged or asked):
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
        raise InvalidRequest(field="fixed_rates", why="a rate must be above zero")
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
