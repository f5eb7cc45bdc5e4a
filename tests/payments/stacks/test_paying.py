"""An agent pays in sBTC, STX and USDCx: from the x402 client through our scheme and a relay onto a chain."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest
from fastapi import FastAPI
from x402 import x402Client, x402ResourceServer
from x402.http.clients.httpx import x402_httpx_transport
from x402.http.middleware.fastapi import PaymentMiddlewareASGI
from x402.http.types import PaymentOption, RouteConfig
from x402.interfaces import PaymentFlowConfig
from x402.schemas import (
    AssetAmount,
    Network,
    PaymentRequirements,
    Price,
    SupportedKind,
    SupportedResponse,
)

from sandboxer.payments.stacks.facilitator import StacksFacilitator
from sandboxer.payments.stacks.nodes import next_nonce
from sandboxer.payments.stacks.relay import Relay
from sandboxer.payments.stacks.shop import ExactStacksClient, StacksShop
from tests.support.payments.stacks import Till


class OtherShopsFacilitator(StacksFacilitator):
    """What the x402 package asks besides of a facilitator."""

    def get_supported(self) -> SupportedResponse:
        kind = SupportedKind(x402_version=2, scheme="exact", network=self._shop.network.caip2)
        return SupportedResponse(kinds=[kind], extensions=["payment-identifier"])


class OtherShopsScheme:
    """The selling side of the scheme as the x402 package wants it: a shop that is not ours."""

    scheme = "exact"
    default_asset_transfer_method = "sponsored"
    payment_flows: Mapping[str, PaymentFlowConfig] = {
        "sponsored": {"supported": ("authorization", "upfront"), "default": "upfront"}
    }

    def __init__(self, shop: StacksShop) -> None:
        self._shop = shop

    def parse_price(self, price: Price, network: Network) -> AssetAmount:
        assert isinstance(price, AssetAmount)
        token = self._shop.token(price.asset)
        assert token is not None
        return AssetAmount(amount=price.amount, asset=price.asset, extra=dict(token.extra()))

    def enhance_payment_requirements(
        self, requirements: PaymentRequirements, supported_kind: SupportedKind, extensions: list[str]
    ) -> PaymentRequirements:
        return requirements


def shop_with_a_price(till: Till, amount: int, http: httpx.AsyncClient) -> FastAPI:
    """A plain app of the x402 package: nothing of our checkout in it."""
    app = FastAPI()

    @app.get("/thing")
    def thing() -> dict[str, str]:
        return {"thing": "yours"}

    network = till.shop.network.caip2
    token = till.shop.tokens[0]
    server = x402ResourceServer(OtherShopsFacilitator(till.shop, Relay(till.shop.relay, http)))
    server.register(network, OtherShopsScheme(till.shop))
    option = PaymentOption(
        scheme="exact",
        pay_to=till.shop.pay_to,
        price=AssetAmount(amount=str(amount), asset=token.wire),
        network=network,
    )
    app.add_middleware(
        PaymentMiddlewareASGI, routes={"GET /thing": RouteConfig(accepts=option)}, server=server
    )
    return app


async def test_the_x402_client_buys_a_thing_for_sbtc(till: Till) -> None:
    client = x402Client()
    client.register(
        "stacks:*", ExactStacksClient(till.payer.key, lambda a: next_nonce(till.chain.node_url, a))
    )
    client.set_spend_controls(False)
    async with httpx.AsyncClient(trust_env=False) as outside:
        shop = httpx.ASGITransport(app=shop_with_a_price(till, 1_500, outside))
        transport = x402_httpx_transport(client, shop)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            answer = await http.get("/thing")
    assert (answer.status_code, answer.json()) == (200, {"thing": "yours"})
    assert till.received() == 0
    till.chain.mine()
    assert till.received() == 1_500
    assert till.chain.balance("SBTC", till.payer.address) == 98_500


@pytest.mark.parametrize(("asset", "amount"), [("SBTC", 700), ("STX", 250_000), ("USDCX", 1_000_001)])
async def test_each_coin_moves_to_the_shop(till: Till, asset: str, amount: int) -> None:
    asked = till.ask(amount, asset)
    payload = till.sign(asked)
    verdict = await till.way.facilitator.verify(payload, asked)
    assert verdict.is_valid
    assert verdict.payer == till.payer.address
    settled = await till.way.facilitator.settle(payload, asked)
    assert settled.success
    assert settled.extra is not None
    assert settled.extra["paymentId"].startswith("pay_")
    till.chain.mine()
    assert till.received(asset) == amount


async def test_the_payer_needs_no_stx_for_the_fee(till: Till) -> None:
    till.payer = till.chain.wallet(SBTC=1_000)
    asked = till.ask(1_000)
    assert (await till.way.facilitator.settle(till.sign(asked), asked)).success
    till.chain.mine()
    assert till.received() == 1_000
    assert till.chain.balance("STX", till.payer.address) == 0


async def test_more_than_was_asked_is_taken(till: Till) -> None:
    asked = till.ask(500)
    payload = till.sign(till.ask(600))
    assert (await till.way.facilitator.settle(payload, asked)).success
    till.chain.mine()
    assert till.received() == 600
