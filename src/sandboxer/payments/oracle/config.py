"""What an operator says of rates: written down, or whom to ask and how many must agree. Read strictly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal, InvalidOperation
from typing import Any

import httpx

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments.oracle.asking import Asking
from sandboxer.payments.oracle.book import FirstKnown, FixedRates, RateBook
from sandboxer.payments.oracle.rates import Rates
from sandboxer.payments.oracle.sightings import RatePolicy
from sandboxer.payments.oracle.sources import SOURCES, Source, source_named

_KNOWN = frozenset({"sources", "quorum", "stale_after", "tolerance"})
# The quorum of every asset that is not named.
ANY = "*"


@asynccontextmanager
async def open_rates(
    fixed: Mapping[str, str], asked: Mapping[str, Any], clock: Clock
) -> AsyncIterator[Rates]:
    """What is written down goes first; beside it the world is asked only if `asked` names sources."""
    written = fixed_rates(fixed, clock)
    sources, policy = read_sources(asked), read_policy(asked)
    if (fixed and "sources" not in asked) or not sources:
        yield written
        return
    async with httpx.AsyncClient() as client, own_tasks() as tasks:
        book = RateBook(Asking(sources, client, clock), clock, policy)
        tasks.start(book.run(), name="rates")
        yield FirstKnown(written, book)


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
