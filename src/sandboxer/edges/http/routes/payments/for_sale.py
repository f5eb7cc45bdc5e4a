"""What is for sale, where agents that know x402 look for it."""

from __future__ import annotations

from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.payments import Goods, WellKnown


async def well_known(asked: Asked[NoParameters, NoParameters, None]) -> WellKnown:
    platform = asked.platform
    x402, url = platform.payments.x402, platform.settings.url
    goods = [] if x402 is None else await x402.asking.for_sale()
    networks = [] if x402 is None else list(dict.fromkeys(way.network for way in x402.ways.open_ones))
    return WellKnown(
        resources=[good["resource"] for good in goods],
        networks=networks,
        pricing=f"{url}/v1/pricing",
        discovery=f"{url}/discovery/resources",
        document=f"{url}/openapi.json",
    )


async def goods(asked: Asked[NoParameters, NoParameters, None]) -> Goods:
    x402 = asked.platform.payments.x402
    items = [] if x402 is None else await x402.asking.for_sale()
    return Goods.model_validate({"items": items})


BINDINGS: tuple[Binding, ...] = (
    bind(operations.GET_X402, well_known),
    bind(operations.LIST_GOODS, goods),
)
