"""Bitcoin and Dogecoin's stand-in through Esplora's REST, on the same chains the RPC tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from sandboxer.payments.chains.esplora import Esplora
from testchains.bitcoin.chain import Bitcoin, Dogecoin
from testchains.bitcoin.esplora_face import PAGE
from testchains.liar import Liar, Lie
from tests.payments.chains.suite import Adapter, ChainContract, change
from tests.support.payments.keys import account_key


class EsploraContract(ChainContract):
    lies: ClassVar[dict[str, Lie]] = {
        "mined long ago": change("block_height", lambda height: height - 50),
        "mined in the future": change("block_height", lambda height: height + 50),
        "a negative amount": change("value", lambda value: -value),
        "a fraction of a satoshi": change("value", lambda value: value / 3),
        "in a block nobody has": change("block_hash", lambda _: "ab" * 32),
        "a txid that is none": change("txid", lambda _: "../../etc/passwd"),
    }

    def open(self, node: Any, url: str | None = None) -> Esplora:
        return Esplora(node.network, url or node.esplora_url, keys=account_key(node.network))

    @asynccontextmanager
    async def lying(self, node: Any, lie: Lie) -> AsyncIterator[Adapter]:
        with Liar(node.esplora_url, lie) as liar:
            adapter = self.open(node, liar.url)
            yield adapter
            await adapter.close()


class TestEsplora(EsploraContract):
    stranger = "bcrt1qsvsxz8lsxg3rc86tk8am6g53l54n7s7eq98mfg"

    @pytest.fixture
    def node(self, bitcoin: Bitcoin) -> Bitcoin:
        return bitcoin

    async def test_a_replaced_payment_is_gone(self, chain: Adapter, bitcoin: Bitcoin, index: int) -> None:
        address = await chain.fresh_address(index)
        bitcoin.double_spend(bitcoin.pay(address, self.small))
        assert await chain.deposits([address]) == []
        bitcoin.mine(1)

    async def test_more_payments_than_a_page_holds_are_all_found(
        self, chain: Adapter, bitcoin: Bitcoin, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        for _ in range(PAGE + 5):
            bitcoin.pay(address, self.small)
            bitcoin.mine(1)
        assert len(await chain.deposits([address])) == PAGE + 5


class TestDogecoinEsplora(EsploraContract):
    """Dogecoin's addresses; what the stand-in cannot show is in docs/guides/chains.md."""

    stranger = "DBus3bamQjgJULBJtYXpEzDWQRwF5iwxgC"

    @pytest.fixture
    def node(self, dogecoin: Dogecoin) -> Dogecoin:
        return dogecoin
