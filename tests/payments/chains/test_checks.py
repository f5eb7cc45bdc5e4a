"""A coin's node is believed only if it is the one that the settings name, knows the newest blocks and can do
what we need of it; else the coin is off with a reason, until it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.chains import contract, core_rpc
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.contract import (
    AGAIN_WHEN_OFF,
    AGAIN_WHEN_ON,
    CheckedChain,
    Rails,
    Standings,
    pause_after,
)
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.chains.esplora import Esplora
from sandboxer.payments.chains.monero import MoneroWallet
from testchains.bitcoin.chain import Bitcoin, Dogecoin
from testchains.impostor import Impostor, Refuses
from testchains.litecoin import Litecoin
from testchains.monero import Monero
from tests.support.payments.keys import account_key

Adapter = CoreRpc | Esplora | MoneroWallet
HOUR = 3600


def core(
    node: Any, *, coin: str | None = None, network: str | None = None, url: str | None = None
) -> CoreRpc:
    named = network_of(coin or node.code, network or ("mainnet" if node.code == "DOGE" else "regtest"))
    return CoreRpc(
        named,
        url or node.url,
        user=node.user,
        password=node.password,
        keys=account_key(named),
        wallet="checks",
    )


def rest(
    node: Any, *, coin: str | None = None, network: str | None = None, url: str | None = None
) -> Esplora:
    named = network_of(coin or node.code, network or node.network.name)
    return Esplora(named, url or node.esplora_url, keys=account_key(named))


def wallet(
    node: Monero, *, network: str = "regtest", url: str | None = None, daemon: str | None = None
) -> MoneroWallet:
    return MoneroWallet(
        url or node.wallet_url,
        user=node.user,
        password=node.password,
        network=network,
        daemon_url=daemon or node.daemon_url,
    )


@asynccontextmanager
async def opened(adapter: Adapter) -> AsyncIterator[CheckedChain]:
    try:
        yield CheckedChain(adapter)
    finally:
        await adapter.close()


async def why(adapter: Adapter) -> str | None:
    async with opened(adapter) as chain:
        return await chain.check()


@pytest.fixture
def impostor() -> Iterator[Callable[..., Impostor]]:
    made: list[Impostor] = []

    def make(url: str, auth: httpx.Auth | None = None) -> Impostor:
        made.append(Impostor(url, auth))
        return made[-1]

    yield make
    for each in made:
        each.__exit__()


def basic(node: Any) -> httpx.BasicAuth:
    return httpx.BasicAuth(node.user, node.password)


# -- the right node ------------------------------------------------------------------------------------------


async def test_nodes_that_are_as_configured_can_be_used(
    litecoin: Litecoin, bitcoin: Bitcoin, dogecoin: Dogecoin, monero: Monero
) -> None:
    for adapter in (
        core(litecoin),
        core(bitcoin),
        rest(bitcoin),
        core(dogecoin),
        rest(dogecoin),
        wallet(monero),
    ):
        assert await why(adapter) is None


# -- another chain -------------------------------------------------------------------------------------------


async def test_a_node_of_another_network_or_coin_is_told_apart(
    litecoin: Litecoin, bitcoin: Bitcoin, dogecoin: Dogecoin
) -> None:
    assert "not of LTC mainnet" in str(await why(core(litecoin, network="mainnet")))
    assert "not of BTC regtest" in str(await why(core(litecoin, coin="BTC")))
    assert "not of LTC regtest" in str(await why(core(bitcoin, coin="LTC")))
    assert "not of BTC testnet" in str(await why(rest(bitcoin, network="testnet")))
    assert "not of DOGE testnet" in str(await why(core(dogecoin, network="testnet")))
    assert "not of BTC mainnet" in str(await why(rest(dogecoin, coin="BTC")))


async def test_a_monero_daemon_or_wallet_of_another_network_is_told_apart(
    monero: Monero, impostor: Callable[..., Impostor]
) -> None:
    assert "of fakechain, not of Monero's mainnet" in str(await why(wallet(monero, network="mainnet")))
    liar = impostor(monero.daemon_url)
    liar.says = {"get_info": {"nettype": "stagenet", "synchronized": True}}
    reported = await why(wallet(monero, network="stagenet", daemon=liar.url))
    assert reported == "its wallet is not of Monero's stagenet"


async def test_a_node_that_is_another_after_it_was_away_is_not_believed(
    bitcoin: Bitcoin, impostor: Callable[..., Impostor]
) -> None:
    liar = impostor(bitcoin.url, basic(bitcoin))
    async with opened(core(bitcoin, url=liar.url)) as chain:
        address = await chain.fresh_address(0)
        assert await chain.deposits([address]) == []
        liar.says = {"getwalletinfo": Refuses(-4)}
        with pytest.raises(ChainUnavailable):
            await chain.deposits([address])
        liar.says = {"getblockhash": "00" * 32}
        for question in (chain.tip, lambda: chain.deposits([address]), lambda: chain.fresh_address(0)):
            with pytest.raises(ChainUnavailable, match="not of BTC regtest"):
                await question()
        liar.says = {}
        assert await chain.deposits([address]) == []


# -- behind --------------------------------------------------------------------------------------------------


async def test_a_node_that_is_behind_says_how_far(
    litecoin: Litecoin, dogecoin: Dogecoin, impostor: Callable[..., Impostor]
) -> None:
    liar = impostor(litecoin.url, basic(litecoin))
    liar.says = {"getblockchaininfo": {"blocks": 110, "headers": 9000}}
    assert await why(core(litecoin, url=liar.url)) == "its node is not synchronised: 110 of 9000 blocks"
    liar = impostor(dogecoin.url, basic(dogecoin))
    liar.says = {"getblockchaininfo": {"initialblockdownload": True}}
    assert "it is still at block" in str(await why(core(dogecoin, url=liar.url)))
    liar.says = {"getblockheader": {"time": int(time.time()) - 9 * HOUR}}
    assert "newest block is 9 hours old" in str(await why(core(dogecoin, url=liar.url)))


async def test_an_index_that_stands_still_is_seen_by_the_age_of_its_newest_block(
    dogecoin: Dogecoin, impostor: Callable[..., Impostor]
) -> None:
    liar = impostor(dogecoin.esplora_url)
    best = dogecoin.book.blocks[-1].hash
    liar.says = {f"/block/{best}": f'{{"timestamp": {int(time.time()) - 30 * HOUR}}}'}
    assert "newest block is 30 hours old" in str(await why(rest(dogecoin, url=liar.url)))


async def test_a_monero_daemon_or_wallet_that_is_behind_says_how_far(
    monero: Monero, impostor: Callable[..., Impostor]
) -> None:
    daemon = impostor(monero.daemon_url)
    daemon.says = {"get_info": {"height": 120, "target_height": 3000}}
    reported = await why(wallet(monero, daemon=daemon.url))
    assert reported == "its daemon is not synchronised: 120 of 3000 blocks"
    daemon.says = {"get_block_count": {"count": 100_001}}
    assert "of 100000 blocks" in str(await why(wallet(monero, daemon=daemon.url)))


# -- what we need of it --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (Refuses(-32601), "has no wallet"),
        ({"private_keys_enabled": True}, "holds keys"),
        ({"descriptors": False}, "no descriptors"),
        ({"scanning": {"duration": 60, "progress": 0.41}}, "reads the chain (41% done)"),
    ],
    ids=["no wallet", "with keys", "legacy", "scanning"],
)
async def test_a_wallet_that_cannot_watch_is_told(
    bitcoin: Bitcoin, impostor: Callable[..., Impostor], says: Any, reason: str
) -> None:
    liar = impostor(bitcoin.url, basic(bitcoin))
    liar.says = {"getwalletinfo": says}
    assert reason in str(await why(core(bitcoin, url=liar.url)))


async def test_a_wallet_server_without_a_wallet_or_of_another_age_is_told(
    monero: Monero, impostor: Callable[..., Impostor]
) -> None:
    server = impostor(monero.wallet_url, httpx.DigestAuth(monero.user, monero.password))
    server.says = {"get_version": {"version": 2 << 16 | 7}}
    assert await why(wallet(monero, url=server.url)) == "its wallet server speaks version 2.7, 1.x is needed"
    server.says = {"get_address": Refuses(-13)}
    with pytest.raises(ChainUnavailable):
        await why(wallet(monero, url=server.url))


async def test_a_look_up_that_takes_too_long_is_told(
    bitcoin: Bitcoin, monero: Monero, impostor: Callable[..., Impostor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "LOOKUP_LIMIT", timedelta(seconds=0.3))
    node = impostor(bitcoin.url, basic(bitcoin))
    node.held = {"listtransactions"}
    assert "look-up of one address" in str(await why(core(bitcoin, url=node.url)))
    index = impostor(bitcoin.esplora_url)
    mark = account_key(bitcoin.network).address(core_rpc.MAX_INDEX)
    index.held = {f"/address/{mark}/txs"}
    assert "look-up of one address" in str(await why(rest(bitcoin, url=index.url)))
    server = impostor(monero.wallet_url, httpx.DigestAuth(monero.user, monero.password))
    server.held = {"refresh"}
    assert "may still be reading the chain" in str(await why(wallet(monero, url=server.url)))


# -- later ---------------------------------------------------------------------------------------------------


class Recorded(Standings):
    def __init__(self) -> None:
        super().__init__()
        self.is_on = asyncio.Event()

    def turn(self, rail: str, why_off: str | None) -> None:
        super().turn(rail, why_off)
        if why_off is None:
            self.is_on.set()


async def test_a_node_that_comes_up_later_turns_its_rail_on_without_a_restart() -> None:
    with Bitcoin() as node:
        node.pause()
        async with opened(core(node)) as chain:
            standings = Recorded()
            rails = Rails(standings, {"BTC": chain.check}, SystemClock())
            await rails.check_all()
            assert "no connection" in str(standings.why_off("BTC"))
            with pytest.raises(ChainUnavailable):
                await chain.tip()
            looking = asyncio.create_task(rails.run())
            node.resume()
            async with asyncio.timeout(30):
                await standings.is_on.wait()
            assert await chain.tip() == node.height()
            looking.cancel()


def test_a_rail_that_is_off_is_tried_again_soon_and_then_seldom() -> None:
    assert [pause_after(n).total_seconds() for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert pause_after(1000) == AGAIN_WHEN_OFF
    assert pause_after(0) == AGAIN_WHEN_ON
