"""What the platform takes a coin to be worth right now, for anyone to read."""

from __future__ import annotations

from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.kernel.errors import NoRate
from sandboxer.payments.oracle.rates import Rates
from sandboxer.wire import invoices as wire
from sandboxer.wire.invoices import RateList
from sandboxer.wire.operations import pricing as operations
from sandboxer.wire.operations.declaration import NoParameters


async def rates(asked: Asked[NoParameters, NoParameters, None]) -> RateList:
    known = asked.platform.payments.rates
    await known.warm(known.assets)
    off = asked.platform.payments.invoices.why_off()
    lines = [(await _line(known, asset)).model_copy(update={"off": off.get(asset)}) for asset in known.assets]
    return wire.RateList(rates=lines)


async def _line(rates: Rates, asset: str) -> wire.RateLine:
    try:
        rate = await rates.usd(asset)
    except NoRate as error:
        return wire.RateLine(asset=asset, usd=None, sources=[], why=str(error.facts.get("why", "")))
    return wire.RateLine(asset=asset, usd=f"{rate.usd:f}", at=rate.at, sources=list(rate.sources))


BINDINGS: tuple[Binding, ...] = (bind(operations.LIST_RATES, rates),)
