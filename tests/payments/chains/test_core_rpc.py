"""Core-style nodes: Litecoin Core itself, Bitcoin on Core's validation library, and Dogecoin's stand-in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx
import pytest

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.chains.addresses import Network, network_of
from sandboxer.payments.chains.core_rpc import CoreRpc
from testchains.bitcoin.chain import Bitcoin, Dogecoin
from testchains.liar import Liar, Lie
from testchains.litecoin import Litecoin
from tests.payments.chains.suite import Adapter, ChainContract, change
from tests.support.payments.keys import account_key

CORE_LIES: dict[str, Lie] = {
    "deeper than the chain is high": change("confirmations", lambda depth: depth + 1000),
    "one block deeper": change("confirmations", lambda depth: depth + 1),
    "a negative amount": change("amount", lambda amount: -amount),
    "more digits than there are": change("amount", lambda amount: amount / 100_000),
    "an amount that is a text": change("amount", str),
    "to another address": change("address", lambda _: "elsewhere"),
    "in a block nobody has": change("blockhash", lambda _: "ab" * 32),
    "a txid that is none": change("txid", lambda _: "../../etc/passwd"),
    "no output number": change("vout", lambda _: None),
}


class CoreContract(ChainContract):
    lies: ClassVar[dict[str, Lie]] = CORE_LIES

    def network(self, node: Any) -> Network:
        return node.network

    def open(self, node: Any, url: str | None = None) -> CoreRpc:
        network = self.network(node)
        return CoreRpc(
            network, url or node.url, user=node.user, password=node.password, keys=account_key(network)
        )

    @asynccontextmanager
    async def lying(self, node: Any, lie: Lie) -> AsyncIterator[Adapter]:
        with Liar(node.url, lie, httpx.BasicAuth(node.user, node.password)) as liar:
            adapter = self.open(node, liar.url)
            yield adapter
            await adapter.close()

    async def test_a_replaced_payment_is_conflicted_and_gone_once_its_rival_is_mined(
        self, chain: Adapter, node: Any, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        txid = node.pay(address, self.small)
        node.double_spend(txid)
        seen = await self.only(chain, address)
        assert (seen.txid, seen.confirmations, seen.conflicted) == (txid, 0, True)
        node.mine(1)
        assert await chain.deposits([address]) == []

    async def test_coins_that_came_before_the_wallet_knew_the_address_are_found(
        self, chain: Adapter, node: Any, index: int
    ) -> None:
        address = account_key(self.network(node)).address(index)
        node.pay(address, self.small)
        node.mine(2)
        assert (await self.only(chain, address)).confirmations == 2

    async def test_a_wrong_password_is_told_without_telling_it(self, node: Any) -> None:
        network = self.network(node)
        adapter = CoreRpc(network, node.url, user="nobody", password="hunter2")
        with pytest.raises(ChainUnavailable, match="credentials") as refusal:
            await adapter.tip()
        assert "hunter2" not in str(refusal.value)
        await adapter.close()


class TestLitecoinCore(CoreContract):
    stranger = "rltc1qudw9wfrpuevfeapru7t5z8txfujlt2h4sf8efg"

    def network(self, node: Any) -> Network:
        return network_of("LTC", "regtest")

    @pytest.fixture
    def node(self, litecoin: Litecoin) -> Litecoin:
        return litecoin


class TestBitcoinKernel(CoreContract):
    stranger = "bcrt1qsvsxz8lsxg3rc86tk8am6g53l54n7s7eq98mfg"

    @pytest.fixture
    def node(self, bitcoin: Bitcoin) -> Bitcoin:
        return bitcoin

    async def test_a_lost_wallet_is_made_again_with_what_it_had(
        self, chain: Adapter, bitcoin: Bitcoin, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        bitcoin.pay(address, self.small)
        bitcoin.mine(1)
        bitcoin.rpc.forget_wallets()
        assert (await self.only(chain, address)).confirmations == 1


class TestDogecoinStandIn(CoreContract):
    """Dogecoin's address bytes and its older RPC; what it cannot show is in docs/guides/chains.md."""

    stranger = "DBus3bamQjgJULBJtYXpEzDWQRwF5iwxgC"

    @pytest.fixture
    def node(self, dogecoin: Dogecoin) -> Dogecoin:
        return dogecoin
