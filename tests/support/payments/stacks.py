"""A shop on the local chain, and a payer with some of each coin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.payments.stacks.nodes import next_nonce
from sandboxer.payments.stacks.shop import ExactStacksClient, StacksShop, stacks_shop
from sandboxer.payments.stacks.way import stacks_way
from sandboxer.payments.x402.ways import Way, X402Settings, read_settings
from testchains.stacks.local import LocalStacks, Wallet
from tests.support.chains.stacks import stacks

__all__ = ["stacks"]


@dataclass
class Till:
    """Where the tests pay: a shop of its own at the shared chain."""

    chain: LocalStacks
    owner: Wallet
    payer: Wallet
    shop: StacksShop
    way: Way

    def ask(self, amount: int, asset: str = "SBTC") -> PaymentRequirements:
        token = next(token for token in self.shop.tokens if token.asset.code == asset)
        return PaymentRequirements(
            scheme="exact",
            network=self.shop.network.caip2,
            asset=token.wire,
            amount=str(amount),
            pay_to=self.shop.pay_to,
            max_timeout_seconds=self.shop.timeout_s,
            extra=token.extra(),
        )

    def sign(self, asked: PaymentRequirements, *, ahead: int = 0) -> PaymentPayload:
        client = ExactStacksClient(self.payer.key, lambda who: next_nonce(self.chain.node_url, who) + ahead)
        return PaymentPayload(payload=client.create_payment_payload(asked), accepted=asked)

    def received(self, asset: str = "SBTC") -> int:
        return self.chain.balance(asset, self.owner.address)


def network_settings(entry: dict[str, Any]) -> X402Settings:
    settings = read_settings({"networks": [entry]})
    assert settings is not None
    return settings


@pytest.fixture
async def till(stacks: LocalStacks) -> AsyncIterator[Till]:
    owner, payer = stacks.wallet(), stacks.wallet(SBTC=100_000, STX=5_000_000, USDCX=9_000_000)
    settings = network_settings(stacks.settings(owner.address)).networks[0]
    async with httpx.AsyncClient(trust_env=False) as http:
        yield Till(stacks, owner, payer, stacks_shop(settings), stacks_way(settings, http))
