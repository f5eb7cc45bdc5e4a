"""What every chain adapter must do, on a real node: subclassed once per adapter and node."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol

import pytest

from sandboxer.kernel.errors import AddressUsed, ChainUnavailable, InvalidRequest
from sandboxer.payments.chains.contract import Chain, Deposit
from testchains.liar import Lie


class Adapter(Chain, Protocol):
    async def close(self) -> None: ...


class Node(Protocol):
    def mine(self, blocks: int = 1) -> None: ...
    def pay(self, address: str, amount: int) -> str: ...
    def pay_many(self, outputs: list[tuple[str, int]]) -> str: ...
    def reorg(self, depth: int) -> None: ...
    def height(self) -> int: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class ChainContract:
    """Subclasses give `node`, `open` and `lying`."""

    # Just above what the node's mempool calls dust.
    small: ClassVar[int] = 10_000
    # An address of this chain that is not ours, and one of another chain.
    stranger: ClassVar[str]
    foreign: ClassVar[str] = "0x52908400098527886E0F7030069857D2E4169EE7"
    # Does one transaction show each of its outputs to one address, or their sum?
    outputs_apart: ClassVar[bool] = True
    lies: ClassVar[dict[str, Lie]]
    _indexes: ClassVar[Iterator[int]] = itertools.count(1000)

    @pytest.fixture
    def node(self) -> Node:
        raise NotImplementedError

    def open(self, node: Any) -> Adapter:
        raise NotImplementedError

    @asynccontextmanager
    async def lying(self, node: Any, lie: Lie) -> AsyncIterator[Adapter]:
        raise NotImplementedError
        yield

    @pytest.fixture
    async def chain(self, node: Node) -> AsyncIterator[Adapter]:
        adapter = self.open(node)
        yield adapter
        await adapter.close()

    @pytest.fixture
    def index(self) -> int:
        return next(self._indexes) * 2

    async def only(self, chain: Chain, address: str) -> Deposit:
        (deposit,) = await chain.deposits([address])
        return deposit

    async def test_the_tip_is_the_height_of_the_best_block(self, chain: Adapter, node: Node) -> None:
        before = await chain.tip()
        node.mine(2)
        assert (before + 2, node.height()) == (await chain.tip(),) * 2

    async def test_an_index_gives_one_address_always_and_two_give_two(
        self, chain: Adapter, index: int
    ) -> None:
        first = await chain.fresh_address(index)
        assert await chain.fresh_address(index) == first
        assert await chain.fresh_address(index + 1) != first
        chain.check_address(first)

    async def test_an_address_that_received_something_is_not_handed_out_again(
        self, chain: Adapter, node: Node, index: int
    ) -> None:
        node.pay(await chain.fresh_address(index), self.small)
        with pytest.raises(AddressUsed):
            await chain.fresh_address(index)
        node.mine(1)
        with pytest.raises(AddressUsed):
            await chain.fresh_address(index)

    async def test_a_deposit_is_seen_unconfirmed_and_then_rises_block_by_block(
        self, chain: Adapter, node: Node, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        txid = node.pay(address, self.small)
        seen = await self.only(chain, address)
        assert (seen.txid, seen.amount, seen.address) == (txid, self.small, address)
        assert (seen.confirmations, seen.block, seen.height) == (0, None, None)
        assert (seen.chain, seen.unlocked, seen.conflicted) == (chain.code, True, False)
        for depth in (1, 2, 3):
            node.mine(1)
            seen = await self.only(chain, address)
            assert (seen.confirmations, seen.height) == (depth, node.height() - depth + 1)
        assert seen.block is not None

    async def test_a_reorganisation_takes_confirmations_back_and_a_new_block_gives_them_again(
        self, chain: Adapter, node: Node, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        txid = node.pay(address, self.small)
        node.mine(3)
        assert (await self.only(chain, address)).confirmations == 3
        node.reorg(3)
        # A wallet may take its time to see a returned transaction in the pool; it must not count it as mined.
        assert all(each.confirmations == 0 for each in await chain.deposits([address]))
        node.mine(2)
        again = await self.only(chain, address)
        assert (again.txid, again.confirmations) == (txid, 2)

    async def test_two_payments_and_two_outputs_of_one_transaction_are_all_counted(
        self, chain: Adapter, node: Node, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        node.pay_many([(address, self.small), (address, 2 * self.small)])
        node.pay(address, 3 * self.small)
        node.mine(1)
        seen = await chain.deposits([address])
        amounts = sorted(each.amount for each in seen)
        assert amounts == [n * self.small for n in ((1, 2, 3) if self.outputs_apart else (3, 3))]
        assert len({each.id for each in seen}) == len(seen)

    async def test_many_addresses_are_asked_at_once_and_each_deposit_keeps_its_own(
        self, chain: Adapter, node: Node, index: int
    ) -> None:
        first, second = await chain.fresh_address(index), await chain.fresh_address(index + 1)
        node.pay_many([(first, self.small), (second, 2 * self.small)])
        seen = await chain.deposits([first, second, first])
        assert {each.address: each.amount for each in seen} == {first: self.small, second: 2 * self.small}
        assert len(seen) == 2
        node.mine(1)

    async def test_an_address_nobody_paid_or_that_is_not_ours_has_nothing(self, chain: Adapter) -> None:
        assert await chain.deposits([self.stranger]) == []
        assert await chain.deposits([]) == []

    async def test_an_address_of_another_chain_or_with_a_slip_is_refused(self, chain: Adapter) -> None:
        slip = self.stranger[:-1] + ("a" if self.stranger[-1] != "a" else "c")
        for text in (self.foreign, slip, "", "x" * 400, "bc1é"):
            with pytest.raises(InvalidRequest):
                chain.check_address(text)
        chain.check_address(self.stranger)

    async def test_a_node_that_is_down_is_unavailable_and_comes_back(
        self, chain: Adapter, node: Node, index: int
    ) -> None:
        address = await chain.fresh_address(index)
        await chain.close()
        node.pause()
        try:
            cut_off = self.open(node)
            for question in (cut_off.tip(), cut_off.deposits([address]), cut_off.fresh_address(index)):
                with pytest.raises(ChainUnavailable):
                    await question
            await cut_off.close()
        finally:
            node.resume()
        again = self.open(node)
        assert await again.fresh_address(index) == address
        await again.close()

    async def test_a_node_that_lies_is_not_believed(
        self, chain: Adapter, node: Node, index: int, subtests: pytest.Subtests
    ) -> None:
        address = await chain.fresh_address(index)
        node.pay(address, self.small)
        node.mine(1)
        assert (await self.only(chain, address)).confirmations == 1
        for name, lie in self.lies.items():
            with subtests.test(name):
                async with self.lying(node, lie) as adapter:
                    with pytest.raises(ChainUnavailable):
                        await adapter.deposits([address])


def change(field: str, to: Callable[[Any], Any]) -> Lie:
    """A lie about one field of a payment, or of its outputs and status where these are objects."""

    def lie(payment: dict[str, Any]) -> None:
        outs = payment.get("vout")
        for part in (payment, payment.get("status"), *(outs if isinstance(outs, list) else ())):
            if isinstance(part, dict) and field in part:
                part[field] = to(part[field])

    return lie
