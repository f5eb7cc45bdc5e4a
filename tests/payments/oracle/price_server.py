"""All five price services on one local port, each speaking its own shape, and able to misbehave."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

IDS = {
    "bitcoin": "BTC",
    "litecoin": "LTC",
    "dogecoin": "DOGE",
    "monero": "XMR",
    "blockstack": "STX",
    "usd-coin": "USDC",
    "tether": "USDT",
}
KRAKEN = {"XBTUSD": ("XXBTZUSD", "BTC"), "LTCUSD": ("XLTCZUSD", "LTC"), "XMRUSD": ("XXMRZUSD", "XMR")}


@dataclass
class Market:
    """What each service would say; `broken` makes one misbehave: garbage, error, slow, huge, …"""

    now: int
    prices: dict[str, str] = field(
        default_factory=lambda: {
            "BTC": "60000.10",
            "LTC": "80.5",
            "DOGE": "0.1234",
            "XMR": "150.25",
            "STX": "1.5",
            "USDC": "1.0001",
            "USDT": "0.9990",
        }
    )
    # Prices of one service that differ from everyone's.
    own: dict[tuple[str, str], str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    age_s: int = 0
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def sources(self, *names: str) -> list[str]:
        return [f"{name}={self.url}/{name}" for name in names]

    def price(self, service: str, asset: str) -> str:
        return self.own.get((service, asset), self.prices[asset])

    def answer(self, service: str, path: str, query: dict[str, list[str]]) -> object:
        at = self.now - self.age_s
        if service == "coingecko":
            assert path == "/api/v3/simple/price"
            assert query["vs_currencies"] == ["usd"]
            return {
                word: {"usd": number(self.price(service, IDS[word])), "last_updated_at": at}
                for word in query["ids"][0].split(",")
            }
        if service == "coinbase":
            base = path.removeprefix("/v2/prices/").removesuffix("-USD/spot")
            return {"data": {"amount": self.price(service, base), "base": base, "currency": "USD"}}
        if service == "kraken":
            pair = query["pair"][0]
            key, asset = KRAKEN.get(pair, (pair, pair.removesuffix("USD").replace("XDG", "DOGE")))
            return {"error": [], "result": {key: {"c": [self.price(service, asset), "0.01"]}}}
        if service == "binance":
            symbol = query["symbol"][0]
            return {"symbol": symbol, "price": self.price(service, symbol.removesuffix("USDT"))}
        assert (service, path) == ("mempool", "/api/v1/prices")
        return {"time": at, "USD": number(self.price(service, "BTC")), "EUR": 1}


def number(text: str) -> str:
    """Written as a number with exactly the digits given: `_written` takes the quotes off."""
    return f"\x01{text}"


def _written(answer: object) -> bytes:
    return re.sub(rb'"\\u0001([^"]*)"', rb"\1", json.dumps(answer).encode())


@asynccontextmanager
async def price_server(market: Market) -> AsyncIterator[Market]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _serve(market, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    market.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield market
    finally:
        server.close()


async def _serve(market: Market, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    target = head.split(" ")[1]
    market.asked.append(target)
    service, _, rest = target.removeprefix("/").partition("/")
    parts = urlsplit("/" + rest)
    how = market.broken.get(service)
    body = _written(market.answer(service, parts.path, parse_qs(parts.query)))
    status = {"error": "500 Oops", "redirect": "302 Found"}.get(how or "", "200 OK")
    if how == "garbage":
        body = b"<html>\xff not json"
    elif how == "deep":
        body = b"[" * 50_000
    elif how == "empty":
        body = b"{}"
    elif how == "nan":
        body = body.replace(market.price(service, "BTC").encode(), b"NaN")
    elif how == "negative":
        body = body.replace(market.price(service, "BTC").encode(), b"-1")
    elif how == "slow":
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)
    elif how == "huge":
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for _ in range(10_000):
            writer.write(b" " * 10_000)
            await writer.drain()
        return
    writer.write(
        f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
    )
    await writer.drain()
