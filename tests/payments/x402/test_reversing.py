"""A confirmed payment is taken back on proof only; whatever a bad node says is no proof."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment
from sandboxer.store.engine import Store
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.payments.x402.lying_node import (
    FORGETFUL,
    NULL_RECEIPTS,
    OTHER_CHAIN,
    OTHER_FORK,
    SLOW,
    LyingNode,
)
from tests.support.payments.x402 import Desk, balance, follow, open_desk, reload


@pytest.fixture
def node(evm: Anvil) -> Iterator[LyingNode]:
    with LyingNode(evm) as opened:
        yield opened


@pytest.fixture
def second(evm: Anvil) -> Iterator[LyingNode]:
    with LyingNode(evm) as opened:
        yield opened


@pytest.fixture
async def lied_to(evm: Anvil, sqlite_store: Store, tmp_path: Path, node: LyingNode) -> AsyncIterator[Desk]:
    async with open_desk(evm, sqlite_store, tmp_path, network={"rpc_url": node.url}) as use_cases:
        yield use_cases


async def look(use_cases: Desk, payment: Payment, *, times: int = 1, blocks: int = 0) -> Payment:
    """Let the reconciler look so often, with so many new blocks before each look."""
    for _ in range(times):
        if blocks:
            use_cases.chain.mine(blocks)
        found = await reload(use_cases, payment)
        use_cases.clock.ahead += (
            max(found.look_at or use_cases.clock.now(), use_cases.clock.now()) - use_cases.clock.now()
        )
        await use_cases.x402.reconciler.round()
    return await reload(use_cases, payment)


@pytest.mark.parametrize("behind", [1, 2, 50])
async def test_a_node_that_is_behind_takes_nothing_back(
    lied_to: Desk, node: LyingNode, wallet: str, behind: int
) -> None:
    lied_to.chain.mine(50)
    payment = await lied_to.buy(await lied_to.pay(wallet))
    assert payment.state is State.CONFIRMED
    node.behind = behind
    after = await look(lied_to, payment, times=3)
    assert (after.state, await balance(lied_to, after)) == (State.CONFIRMED, (1000, 0))


@pytest.mark.parametrize("lie", [NULL_RECEIPTS, FORGETFUL, OTHER_CHAIN])
async def test_a_node_that_denies_what_its_own_blocks_show_takes_nothing_back(
    lied_to: Desk, node: LyingNode, wallet: str, lie: str
) -> None:
    payment = await lied_to.buy(await lied_to.pay(wallet))
    node.lies = lie
    after = await look(lied_to, payment, times=4, blocks=2)
    assert (after.state, await balance(lied_to, after)) == (State.CONFIRMED, (1000, 0))


async def test_another_fork_freezes_spending_before_it_takes_anything_back(
    lied_to: Desk, node: LyingNode, wallet: str
) -> None:
    payment = await lied_to.buy(await lied_to.pay(wallet))
    node.lies = OTHER_FORK
    doubted = await look(lied_to, payment, blocks=1)
    assert doubted.state is State.DOUBTED
    assert await balance(lied_to, doubted) == (1000, 0)
    # However often it is asked: without new blocks it is the same answer.
    assert (await look(lied_to, payment, times=5)).state is State.DOUBTED
    node.is_honest()
    after = await look(lied_to, payment)
    assert (after.state, await balance(lied_to, after)) == (State.CONFIRMED, (1000, 0))


async def test_two_nodes_must_agree_before_anything_is_taken_back(
    evm: Anvil, sqlite_store: Store, tmp_path: Path, node: LyingNode, second: LyingNode, wallet: str
) -> None:
    network = {"rpc_url": node.url, "second_rpc_url": second.url}
    async with open_desk(evm, sqlite_store, tmp_path, network=network) as use_cases:
        payment = await use_cases.buy(await use_cases.pay(wallet))
        node.lies = OTHER_FORK
        after = await look(use_cases, payment, times=5, blocks=5)
        assert (after.state, await balance(use_cases, after)) == (State.CONFIRMED, (1000, 0))
        # One that cannot be asked agrees with nobody.
        second.lies = SLOW
        second.behind = 3
        assert second.asked


async def test_a_payment_that_is_in_no_block_for_so_long_is_taken_back_and_made_again(
    lied_to: Desk, wallet: str
) -> None:
    snapshot = lied_to.chain.snapshot()
    payment = await lied_to.buy(await lied_to.pay(wallet))
    lied_to.chain.revert(snapshot)
    # The other branch is longer, as the one that wins is.
    assert (await look(lied_to, payment, blocks=2)).state is State.DOUBTED
    assert (await look(lied_to, payment, blocks=5)).state is State.DOUBTED
    lied_to.chain.mine(12)
    again = await follow(lied_to, payment, State.CONFIRMED)
    assert again.reversed_at is not None
    assert again.restored_at is not None
    assert await balance(lied_to, payment) == (1000, 0)
    assert lied_to.chain.balance(address_of(wallet)) == 4_000_000
