"""What is for sale, where agents that know x402 look for it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import unsigned_failures
from sandboxer.edges.http.state import platform_of
from sandboxer.wire.payments import Goods, WellKnown

router = APIRouter(tags=["payments"])


@router.get(
    "/.well-known/x402",
    operation_id="getX402",
    response_model=WellKnown,
    responses=unsigned_failures(503),
    summary="Where payments by x402 are taken",
)
async def well_known(request: Request) -> Response:
    platform = platform_of(request)
    x402, url = platform.payments.x402, platform.settings.url
    goods = [] if x402 is None else await x402.asking.for_sale()
    networks = [] if x402 is None else list(dict.fromkeys(way.network for way in x402.ways.open_ones))
    return json_response(
        WellKnown(
            resources=[good["resource"] for good in goods],
            networks=networks,
            pricing=f"{url}/v1/pricing",
            discovery=f"{url}/discovery/resources",
            document=f"{url}/openapi.json",
        )
    )


@router.get(
    "/discovery/resources",
    operation_id="listGoods",
    response_model=Goods,
    responses=unsigned_failures(503),
    summary="What is for sale, with offers at the least price",
)
async def goods(request: Request) -> Response:
    x402 = platform_of(request).payments.x402
    items = [] if x402 is None else await x402.asking.for_sale()
    return json_response(Goods.model_validate({"items": items}))
