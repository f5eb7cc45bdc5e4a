"""An agent pays in sBTC, STX and USDCx: from the x402 client through our scheme and a relay onto a chain."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from x402 import x402Client, x402ResourceServer
from x402.http.clients.httpx import x402_httpx_transport
from x402.http.middleware.fastapi import PaymentMiddlewareASGI
from x402.http.types import PaymentOption, RouteConfig
from x402.schemas import AssetAmount

from sandboxer.payments.stacks.facilitator import ExactStacksFacilitator
from sandboxer.payments.stacks.nodes import next_nonce
from sandboxer.payments.stacks.shop import ExactStacksClient, ExactStacksServer
from tests.support.payments.stacks import Till


def shop_with_a_price(till: Till, amount: int) -> FastAPI:
    """A plain app of the x402 package: nothing of our checkout in it."""
    app = FastAPI()

    @app.get("/thing")
    def thing() -> dict[str, str]:
        return {"thing": "yours"}

    network = till.shop.network.caip2
    token = till.shop.tokens[0]
    server = x402ResourceServer(till.way.facilitator)  # type: ignore[arg-type]
    server.register(network, ExactStacksServer(till.shop))
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
    transport = x402_httpx_transport(client, httpx.ASGITransport(app=shop_with_a_price(till, 1_500)))
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


def test_the_synchronous_scheme_settles_as_well(till_settings: tuple[Till, ExactStacksFacilitator]) -> None:
    till, scheme = till_settings
    asked = till.ask(300)
    payload = till.sign(asked)
    assert scheme.verify(payload, asked).is_valid
    assert scheme.settle(payload, asked).success
    till.chain.mine()
    assert till.received() == 300


@pytest.fixture
def till_settings(till: Till) -> tuple[Till, ExactStacksFacilitator]:
    return till, ExactStacksFacilitator(till.shop)
