"""Monero through its wallet server, on a chain of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx
import pytest

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.chains.monero import MoneroWallet
from testchains.liar import Liar, Lie
from testchains.monero import Monero
from tests.payments.chains.suite import Adapter, ChainContract, change

# A paused wallet server hangs, and a busy one answers after some seconds.
SOON = httpx.Timeout(2.5)


class TestMonero(ChainContract):
    small = 12_345
    stranger = (
        "461nRJUL7Tm8QkSo8SS3r5if61cXGrUpggdgkLhKLWVQ5f3eykX2F41Ait68ewoVFFAuv2rzcXE9j5VaDpti3iL86sj9XYa"
    )
    outputs_apart = False
    lies: ClassVar[dict[str, Lie]] = {
        "deeper than the chain is high": change("confirmations", lambda depth: depth + 1000),
        "one block deeper": change("confirmations", lambda depth: depth + 1),
        "a negative amount": change("amount", lambda amount: -amount),
        "to another address": change("address", lambda _: "elsewhere"),
        "a fraction": change("amount", lambda amount: amount / 2),
        "an unlock time that is none": change("unlock_time", lambda _: None),
        "a height that is none": change("height", lambda _: "7"),
    }

    @pytest.fixture
    def node(self, monero: Monero) -> Monero:
        return monero

    @pytest.fixture
    def index(self) -> int:
        # The wallet makes subaddresses in order, so these start low.
        return (next(self._indexes) - 1000) * 2

    def open(self, node: Any, url: str | None = None) -> MoneroWallet:
        return MoneroWallet(
            url or node.wallet_url,
            user=node.user,
            password=node.password,
            daemon_url=node.daemon_url,
        )

    @asynccontextmanager
    async def lying(self, node: Any, lie: Lie) -> AsyncIterator[Adapter]:
        with Liar(node.wallet_url, lie, httpx.DigestAuth(node.user, node.password)) as liar:
            adapter = self.open(node, liar.url)
            yield adapter
            await adapter.close()

    async def test_a_node_that_is_down_is_unavailable_and_comes_back(
        self, chain: Adapter, node: Any, index: int
    ) -> None:
        """This one hangs instead of refusing, and the daemon beside it is well."""
        address = await chain.fresh_address(index)
        node.pause()
        try:
            hanging = MoneroWallet(node.wallet_url, user=node.user, password=node.password, timeout=SOON)
            with pytest.raises(ChainUnavailable, match="in time"):
                await hanging.deposits([address])
            await hanging.close()
        finally:
            node.resume()
        assert await chain.fresh_address(index) == address

    async def test_what_the_sender_locked_is_marked(self, chain: Adapter, monero: Monero, index: int) -> None:
        address = await chain.fresh_address(index)
        monero.pay(address, self.small, unlock_time=100_000)
        monero.mine(1)
        assert not (await self.only(chain, address)).unlocked

    async def test_a_payment_the_pool_dropped_is_gone(
        self, chain: Adapter, monero: Monero, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        txid = monero.pay(address, self.small)
        assert (await self.only(chain, address)).confirmations == 0
        monero.drop(txid)
        assert await chain.deposits([address]) == []

    async def test_without_a_daemon_the_wallet_alone_is_enough(self, monero: Monero, index: int) -> None:
        alone = MoneroWallet(monero.wallet_url, user=monero.user, password=monero.password)
        address = await alone.fresh_address(index)
        monero.pay(address, self.small)
        monero.mine(1)
        (seen,) = await alone.deposits([address])
        assert (seen.confirmations, seen.block, await alone.tip()) == (1, None, monero.height())
        await alone.close()

    async def test_a_wrong_password_is_told_without_telling_it(self, monero: Monero) -> None:
        stranger = MoneroWallet(monero.wallet_url, user=monero.user, password="hunter2")
        with pytest.raises(ChainUnavailable, match="credentials") as refusal:
            await stranger.tip()
        assert "hunter2" not in str(refusal.value)
        await stranger.close()
