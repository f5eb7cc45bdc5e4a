"""What an order of a stranger costs a Core-style node, and when the past of the chain is read.

Counted by a proxy in front of the real node: reading the chain or all its outputs takes longer on a main
network than anybody waits, and no stranger can cause it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from embit.bip32 import HDKey

from sandboxer.kernel.errors import AddressUsed, ChainUnavailable
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.bitcoin import AccountKey, read_account_key
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.store.engine import open_store
from testchains.bitcoin.chain import Bitcoin, Dogecoin
from testchains.litecoin import Litecoin
from testchains.recorder import Recorder
from tests.support.payments.shop import open_shop

SMALL = 10_000
READS_THE_PAST = {"scantxoutset", "rescanblockchain", "importaddress"}


@pytest.fixture(params=["bitcoin", "litecoin", "dogecoin"])
def node(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def recorder(node: Any) -> Iterator[Recorder]:
    with Recorder(node.url, httpx.BasicAuth(node.user, node.password)) as recorder:
        yield recorder


@pytest.fixture
def keys(node: Bitcoin | Litecoin | Dogecoin, request: pytest.FixtureRequest) -> AccountKey:
    """Of this test alone."""
    network = network_of("LTC", "regtest") if isinstance(node, Litecoin) else node.network
    seed = HDKey.from_seed(request.node.nodeid.encode().rjust(64, b"\0")[-64:])
    return read_account_key(seed.to_public().to_base58(), network)


def open_at(url: str, keys: AccountKey, **more: Any) -> CoreRpc:
    return CoreRpc(keys.network, url, user="", password="", keys=keys, **more)


async def when_read(question: Callable[[int], Awaitable[str]], index: int) -> str:
    """Asked again while the node still reads: on a busy machine that may take longer than one waits."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await question(index)
            except ChainUnavailable as error:
                if "reads the chain" not in str(error):
                    raise
                await asyncio.sleep(0.1)


@pytest.fixture
async def chain(recorder: Recorder, keys: AccountKey) -> AsyncIterator[CoreRpc]:
    adapter = open_at(recorder.url, keys)
    yield adapter
    await adapter.close()


async def test_orders_of_strangers_cost_a_few_cheap_calls_and_never_read_the_past(
    chain: CoreRpc, recorder: Recorder, tmp_path: Path
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/sandboxer.db")
    shop = open_shop(store, chain)
    await shop.order()
    for n in range(5):
        recorder.clear()
        await shop.order(asked_by=f"stranger {n}")
        assert recorder.requests <= 4, recorder.calls
        assert len(recorder.calls) <= 5, recorder.calls
    await store.close()
    recorder.clear()
    for index in range(90, 110):
        await chain.fresh_address(index)
    assert not READS_THE_PAST & set(recorder.calls)
    imports = sum(number for name, number in recorder.counted().items() if name.startswith("import"))
    assert imports == 1, "addresses come under watch many at a time"


async def test_the_first_order_of_a_new_wallet_reads_no_past(chain: CoreRpc, recorder: Recorder) -> None:
    await chain.fresh_address(0)
    assert not READS_THE_PAST & set(recorder.calls)
    assert recorder.requests <= 8


async def test_a_payment_to_an_address_watched_ahead_is_seen(
    chain: CoreRpc, node: Any, keys: AccountKey
) -> None:
    await chain.fresh_address(0)
    node.pay(await chain.fresh_address(37), SMALL)
    with pytest.raises(AddressUsed):
        await chain.fresh_address(37)
    node.mine(1)
    assert [each.confirmations for each in await chain.deposits([keys.address(37)])] == [1]


async def test_a_wallet_lost_together_with_a_restored_database_gives_no_used_address(
    chain: CoreRpc, node: Any, keys: AccountKey
) -> None:
    """Index 5 comes again: the node's wallet is new, yet what was paid to 5 and 6 is found."""
    node.pay(keys.address(5), SMALL)
    node.mine(1)
    node.pay(keys.address(6), SMALL)
    node.mine(1)
    with pytest.raises(AddressUsed):
        await when_read(chain.fresh_address, 5)
    with pytest.raises(AddressUsed):
        await chain.fresh_address(6)
    assert await chain.fresh_address(7) == keys.address(7)


async def test_a_birthday_reads_the_past_of_the_first_addresses_too(
    recorder: Recorder, node: Any, keys: AccountKey
) -> None:
    node.pay(keys.address(0), SMALL)
    node.mine(1)
    chain = open_at(recorder.url, keys, birthday=int(time.time()) - 3600)
    with pytest.raises(AddressUsed):
        await when_read(chain.fresh_address, 0)
    assert await chain.fresh_address(1) == keys.address(1)
    await chain.close()


async def test_while_the_past_is_read_the_rail_is_off_with_a_reason(
    recorder: Recorder, node: Any, keys: AccountKey
) -> None:
    """The node goes on reading after our patience ended; until it is done nothing is concluded."""
    node.pay(keys.address(9), SMALL)
    node.mine(1)
    recorder.held = {"importdescriptors", "importmulti"}
    hasty = open_at(recorder.url, keys, timeout=httpx.Timeout(1))
    with pytest.raises(ChainUnavailable, match="reads the chain"):
        await hasty.deposits([keys.address(9)])
    recorder.held = ()
    recorder.let_go()
    assert [each.amount for each in await hasty.deposits([keys.address(9)])] == [SMALL]
    await hasty.close()


async def test_a_wallet_that_still_reads_is_not_asked_and_says_how_far_it_is(
    bitcoin: Bitcoin,
) -> None:
    seed = HDKey.from_seed(b"still reading".ljust(64, b"."))
    keys = read_account_key(seed.to_public().to_base58(), bitcoin.network)
    chain = CoreRpc(bitcoin.network, bitcoin.url, user=bitcoin.user, password=bitcoin.password, keys=keys)
    address = await chain.fresh_address(0)
    bitcoin.rpc.say_scanning({"duration": 30, "progress": 0.25})
    try:
        for question in (chain.fresh_address(1), chain.deposits([address])):
            with pytest.raises(ChainUnavailable, match="25% done"):
                await question
    finally:
        bitcoin.rpc.say_scanning(False)
    assert await chain.deposits([address]) == []
    await chain.close()
