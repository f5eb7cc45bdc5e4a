"""Paying for real: transactions of our own making, accepted by real nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import Conflict, Forbidden
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.bitcoin import read_account_key
from sandboxer.payments.chains.configuration import Cap
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.chains.esplora import Esplora
from sandboxer.payments.chains.monero import MoneroWallet
from sandboxer.payments.wallet.agent import CappedSpender, Preparing, create_wallet
from sandboxer.payments.wallet.spenders import MoneroSpender, OutputSpender, SpendingKey, new_seed
from testchains.bitcoin.chain import Bitcoin
from testchains.monero import Monero

WHOLE = 10**8


async def pay(spender: Preparing, address: str, amount: int, spend: Deposit | None = None) -> str:
    return await spender.broadcast(await spender.prepare(address, amount, spend=spend))


@pytest.fixture(params=["litecoin", "bitcoin", "esplora", "dogecoin"])
async def payer(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Any, OutputSpender, Any, SpendingKey]]:
    """(node, spender, its chain adapter, its key), with a seed of its own each time."""
    name = "bitcoin" if request.param == "esplora" else request.param
    node: Any = request.getfixturevalue(name)
    network = network_of("LTC", "regtest") if name == "litecoin" else node.network
    key = new_seed().account(network.coin, network.name)
    keys = read_account_key(key.xpub(), network)
    chain: Any = (
        Esplora(network, node.esplora_url, keys=keys)
        if request.param == "esplora"
        else CoreRpc(network, node.url, user=node.user, password=node.password, keys=keys)
    )
    yield node, OutputSpender(chain, key), chain, key
    await chain.close()


async def test_a_wallet_pays_an_exact_amount_and_gets_its_change(payer: Any) -> None:
    node, spender, chain, key = payer
    assert await spender.balance() == 0
    node.pay(key.address(0), 2 * WHOLE)
    node.pay(key.address(1), WHOLE)
    node.mine(1)
    assert await spender.balance() == 3 * WHOLE
    shop = new_seed().account(key.network.coin, key.network.name).address(0)
    prepared = await spender.prepare(shop, 5 * WHOLE // 2)
    assert await spender.broadcast(prepared) == prepared.txid
    assert await spender.broadcast(prepared) == prepared.txid  # a lost answer, sent again
    node.mine(1)
    (paid,) = await chain.deposits([shop])
    assert (paid.txid, paid.amount, paid.confirmations) == (prepared.txid, 5 * WHOLE // 2, 1)
    assert await spender.balance() == WHOLE // 2 - prepared.fee
    with pytest.raises(Conflict, match="not enough"):
        await pay(spender, shop, WHOLE)
    with pytest.raises(Conflict, match="below"):
        await pay(spender, shop, 1)


async def test_a_refund_spends_the_very_output_it_returns(payer: Any) -> None:
    node, spender, chain, key = payer
    address = await chain.fresh_address(77)
    node.pay(key.address(0), 3 * WHOLE)
    txid = node.pay(address, WHOLE)
    node.mine(1)
    (deposit,) = await chain.deposits([address])
    payer = new_seed().account(key.network.coin, key.network.name).address(0)
    refund = await pay(spender, payer, WHOLE * 91 // 100, spend=deposit)
    assert await chain.unspent([address]) == []
    assert len(await chain.unspent([key.address(0)])) == 1, "the wallet's other coin was not touched"
    # The block with the deposit is lost and another transaction takes its place: the refund dies with it.
    node.reorg(1)
    node.double_spend(txid)
    node.mine(1)
    assert [each for each in await chain.deposits([payer]) if not each.conflicted] == []
    assert refund != txid
    with pytest.raises(Conflict, match="spent or gone"):
        await pay(spender, payer, WHOLE * 91 // 100, spend=deposit)
    with pytest.raises(Conflict, match="cannot be spent"):
        await pay(spender, payer, WHOLE // 2, spend=replace(deposit, chain="XMR"))


async def test_a_cap_stops_a_payment_before_it_leaves(bitcoin: Bitcoin, tmp_path: Path) -> None:
    wallet = create_wallet(tmp_path / "wallet", "long enough")
    key = wallet.seed.account("BTC", "regtest")
    chain = Esplora(bitcoin.network, bitcoin.esplora_url)
    capped = CappedSpender(wallet, OutputSpender(chain, key), SystemClock())
    bitcoin.pay(key.address(0), WHOLE)
    bitcoin.mine(1)
    shop = new_seed().account("BTC", "regtest").address(0)
    wallet.set_cap("BTC", Cap(per_payment=60_000, per_day=100_000))
    with pytest.raises(Forbidden):
        await capped.send(shop, 60_000)  # and the fee on top
    await capped.send(shop, 50_000)
    with pytest.raises(Forbidden, match="a day"):
        await capped.send(shop, 50_000)
    assert [each.amount for each in await chain.deposits([shop])] == [50_000]
    bitcoin.mine(1)
    await chain.close()


async def test_monero_is_spent_from_the_subaddress_it_came_to(monero: Monero) -> None:
    chain = MoneroWallet(monero.wallet_url, user=monero.user, password=monero.password)
    spender = MoneroSpender(monero.wallet_url, user=monero.user, password=monero.password)
    address = await chain.fresh_address(150)
    monero.pay(address, 10**12)
    (deposit,) = await chain.deposits([address])
    with pytest.raises(Conflict):
        await pay(spender, monero.bank_address, 10**11, spend=deposit)  # not ripe before ten blocks
    monero.mine(10)
    (deposit,) = await chain.deposits([address])
    assert await spender.balance() >= 10**12
    prepared = await spender.prepare(monero.bank_address, 10**12 * 91 // 100, spend=deposit)
    assert await spender.broadcast(prepared) == prepared.txid
    assert monero.received(prepared.txid) == 10**12 * 91 // 100
    monero.mine(1)
    with pytest.raises(Conflict):
        await pay(spender, monero.bank_address, 10**12 * 91 // 100, spend=deposit)
    with pytest.raises(Conflict, match="not a deposit"):
        await pay(spender, monero.bank_address, 1, spend=replace(deposit, output="7/1"))
    await chain.close()
    await spender.close()
