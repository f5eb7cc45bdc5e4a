"""What the platform takes a coin to be worth right now, for anyone to read."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import unsigned_failures
from sandboxer.edges.http.state import platform_of
from sandboxer.kernel.errors import NoRate
from sandboxer.payments.oracle.rates import Rates
from sandboxer.wire import invoices as wire

router = APIRouter(prefix="/v1", tags=["pricing"])


@router.get(
    "/rates",
    operation_id="listRates",
    response_model=wire.RateList,
    responses=unsigned_failures(),
    summary="US dollars for one of each asset, and who says so",
)
async def rates(request: Request) -> Response:
    known = platform_of(request).payments.rates
    await known.warm(known.assets)
    off = platform_of(request).payments.invoices.why_off()
    lines = [(await _line(known, asset)).model_copy(update={"off": off.get(asset)}) for asset in known.assets]
    return json_response(wire.RateList(rates=lines))


async def _line(rates: Rates, asset: str) -> wire.RateLine:
    try:
        rate = await rates.usd(asset)
    except NoRate as error:
        return wire.RateLine(asset=asset, usd=None, sources=[], why=str(error.facts.get("why", "")))
    return wire.RateLine(asset=asset, usd=f"{rate.usd:f}", at=rate.at, sources=list(rate.sources))
