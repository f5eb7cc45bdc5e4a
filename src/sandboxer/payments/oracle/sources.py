"""The shapes in which public price services answer: assets become requests, answers become sightings.

Nothing they say is trusted: what does not have the expected shape raises ValueError, and `Asking` counts
that source as silent.

Asks the price services over HTTP, all at once, none for longer than a few seconds or a few kilobytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

import httpx

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.oracle.rates import USDT, Sighting

log = logging.getLogger(__name__)
TIMEOUT_S = 5.0
MAX_ANSWER = 64 * 1024
# Reads an answer, given the moment it came.
Reader = Callable[[Any, datetime], list[Sighting]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One GET and how to read what comes back."""

    path: str
    read: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    name: str
    url: str
    # Our asset and the service's word for it.
    words: Mapping[str, str]
    asks: Callable[[Mapping[str, str]], Iterable[Ask]]

    def asks_for(self, assets: Iterable[str]) -> list[Ask]:
        wanted = {asset: self.words[asset] for asset in sorted(assets) if asset in self.words}
        return list(self.asks(wanted)) if wanted else []


def _coingecko(words: Mapping[str, str]) -> Iterable[Ask]:
    """All in one request, with the moment of each price."""

    def read(answer: Any, now: datetime) -> list[Sighting]:
        found = []
        for asset, word in words.items():
            said = _mapping(answer).get(word)
            # A coin it does not know is left out; the others still count.
            if said is not None:
                entry = _mapping(said)
                at = _moment(entry["last_updated_at"])
                found.append(Sighting(source="coingecko", asset=asset, price=_price(entry["usd"]), at=at))
        return found

    ids = ",".join(words.values())
    yield Ask(f"/api/v3/simple/price?ids={ids}&vs_currencies=usd&include_last_updated_at=true", read)


def _coinbase(words: Mapping[str, str]) -> Iterable[Ask]:
    for asset, word in words.items():

        def read(answer: Any, now: datetime, asset: str = asset, word: str = word) -> list[Sighting]:
            data = _mapping(_mapping(answer)["data"])
            if (data["base"], data["currency"]) != (word, "USD"):
                raise ValueError("another pair than asked for")
            return [Sighting(source="coinbase", asset=asset, price=_price(data["amount"]), at=now)]

        yield Ask(f"/v2/prices/{word}-USD/spot", read)


def _kraken(words: Mapping[str, str]) -> Iterable[Ask]:
    for asset, word in words.items():

        def read(answer: Any, now: datetime, asset: str = asset) -> list[Sighting]:
            said = _mapping(answer)
            if said["error"]:
                raise ValueError("it answered with an error")
            # The pair comes back under another name than it was asked by: so one pair a request.
            (ticker,) = _mapping(said["result"]).values()
            return [Sighting(source="kraken", asset=asset, price=_price(ticker["c"][0]), at=now)]

        yield Ask(f"/0/public/Ticker?pair={word}", read)


def _binance(words: Mapping[str, str]) -> Iterable[Ask]:
    """Its prices are in USDT, and marked so."""
    for asset, word in words.items():

        def read(answer: Any, now: datetime, asset: str = asset, word: str = word) -> list[Sighting]:
            said = _mapping(answer)
            if said["symbol"] != word:
                raise ValueError("another pair than asked for")
            return [Sighting(source="binance", asset=asset, price=_price(said["price"]), unit=USDT, at=now)]

        yield Ask(f"/api/v3/ticker/price?symbol={word}", read)


def _mempool(words: Mapping[str, str]) -> Iterable[Ask]:
    def read(answer: Any, now: datetime) -> list[Sighting]:
        said = _mapping(answer)
        at = _moment(said["time"])
        return [Sighting(source="mempool", asset="BTC", price=_price(said["USD"]), at=at)]

    yield Ask("/api/v1/prices", read)


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
                asks=_coingecko,
            ),
            Source(
                name="coinbase",
                url="https://api.coinbase.com",
                words={code: code for code in ("BTC", "LTC", "DOGE", "STX", "USDC", "USDT")},
                asks=_coinbase,
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
                asks=_kraken,
            ),
            Source(
                name="binance",
                url="https://api.binance.com",
                words={code: f"{code}USDT" for code in ("BTC", "LTC", "DOGE", "STX", "USDC")},
                asks=_binance,
            ),
            Source(name="mempool", url="https://mempool.space", words={"BTC": "BTC"}, asks=_mempool),
        )
    }
)


def source_named(text: str) -> Source:
    """`kraken`, or `kraken=http://127.0.0.1:8000` for a mirror of it."""
    name, _, url = text.partition("=")
    source = SOURCES.get(name)
    if source is None:
        raise InvalidRequest(field="rate_sources", why=f"{name!r} is none of {', '.join(SOURCES)}")
    if url and not url.startswith(("https://", "http://")):
        raise InvalidRequest(field="rate_sources", why=f"{url!r} is not an address of the web")
    return Source(name=name, url=(url or source.url).rstrip("/"), words=source.words, asks=source.asks)


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
            found.extend(ask.read(json.loads(body, parse_float=Decimal), self._clock.now()))
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
