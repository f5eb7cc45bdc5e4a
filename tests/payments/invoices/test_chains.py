"""The same invoices on every other chain: Bitcoin by RPC and by Esplora, Dogecoin's stand-in, Monero."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from embit.bip32 import HDKey

from sandboxer.payments.chains.bitcoin import read_account_key
from sandboxer.payments.chains.contract import Chain
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.chains.esplora import Esplora
from sandboxer.payments.chains.monero import MoneroWallet
from sandboxer.payments.invoices.records import Price
from sandboxer.payments.invoices.use_cases import Ordered
from sandboxer.payments.rates import ASSETS
from sandboxer.store.engine import Store
from testchains.monero import Monero
from tests.support.payments.shop import USD, Shop, open_shop

NEEDED = {"BTC": 3, "DOGE": 6, "XMR": 10}


@dataclass
class Place:
    node: Any
    chain: Chain
    home: str

    @property
    def needed(self) -> int:
        return NEEDED[self.chain.code]


@pytest.fixture
def database_url(tmp_path: object) -> str:
    return f"sqlite:///{tmp_path}/sandboxer.db"


@pytest.fixture(params=["bitcoin", "esplora", "dogecoin", "monero"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    name = {"esplora": "bitcoin"}.get(request.param, request.param)
    node = request.getfixturevalue(name)
    if isinstance(node, Monero):
        adapter: Any = MoneroWallet(
            node.wallet_url, user=node.user, password=node.password, daemon_url=node.daemon_url
        )
        home = (
            "461nRJUL7Tm8QkSo8SS3r5if61cXGrUpggdgkLhKLWVQ5f3eykX2F41Ait68ewoVFFAuv2rzcXE9j5VaDpti3iL86sj9XYa"
        )
    else:
        seed = HDKey.from_seed(request.node.nodeid.encode().ljust(64)[-64:])
        keys = read_account_key(seed.to_public().to_base58(), node.network)
        home = keys.address(7, branch=1)
        if request.param == "esplora":
            adapter = Esplora(node.network, node.esplora_url, keys=keys)
        else:
            adapter = CoreRpc(node.network, node.url, user=node.user, password=node.password, keys=keys)
    yield Place(node, adapter, home)
    await adapter.close()


@pytest.fixture
def shop(store: Store, place: Place) -> Shop:
    return open_shop(store, place.chain)


async def test_paid_exactly_and_deep_enough_it_is_credited_to_the_sat(shop: Shop, place: Place) -> None:
    bill = await shop.order(sats=200_000, account=await shop.buyer())
    place.node.pay(bill.invoice.address, bill.invoice.price.atomic)
    await shop.look()
    assert await shop.state(bill) == "seen"
    place.node.mine(place.needed - 1)
    await shop.look()
    assert await shop.state(bill) == "confirming"
    assert await shop.sats() == (0, 0)
    place.node.mine()
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (200_000, 0)
    await shop.check_books()


async def test_too_little_goes_back_and_too_much_becomes_sats(shop: Shop, place: Place) -> None:
    short = await shop.order(tier=1, months=1, refund_address=place.home)
    much = await shop.order(tier=1, months=1, account=await shop.buyer())
    half = short.invoice.price.atomic // 2
    place.node.pay_many(
        [(short.invoice.address, half), (much.invoice.address, much.invoice.price.atomic * 2)]
    )
    await shop.look()
    assert await shop.state(short) == "partial"
    place.node.mine(place.needed)
    await shop.look(after=timedelta(hours=2))
    assert await shop.state(short) == "refund_due"
    (refund,) = await shop.refunds()
    assert (refund.amount, refund.address) == (half * 91 // 100, place.home)
    assert await shop.state(much) == "over"
    assert await shop.sats() == (_excess_of_twice(much.invoice.price, place.chain.code), 0)


def _excess_of_twice(price: Price, code: str) -> int:
    """A hundredth more is still at the locked price; the rest by itself at the rate of its confirmation."""
    locked = price.atomic + price.atomic // 100
    whole_coins = Fraction(2 * price.atomic - locked, ASSETS[code].unit)
    return (
        price.sats_for(locked)
        - price.sats
        + int(whole_coins * Fraction(USD[code]) / Fraction(USD["BTC"]) * 10**8)
    )


async def test_a_reorg_after_delivery_is_a_reversal_until_it_is_mined_again(shop: Shop, place: Place) -> None:
    bill = await shop.order(sats=200_000, account=await shop.buyer())
    place.node.pay(bill.invoice.address, bill.invoice.price.atomic)
    place.node.mine(place.needed)
    await _look_until(shop, bill, "paid")
    assert await shop.sats() == (200_000, 0)
    place.node.reorg(place.needed)
    await _look_until(shop, bill, "reorged")
    assert await shop.sats() == (0, 0)
    place.node.mine(place.needed)
    await _look_until(shop, bill, "paid")
    assert await shop.sats() == (200_000, 0)
    await shop.check_books()


async def _look_until(shop: Shop, bill: Ordered, state: str) -> None:
    """A wallet server notices what its daemon knows a moment later; a few looks are enough."""
    seen = []
    for _ in range(6):
        await shop.look()
        seen.append((await shop.state(bill), [o.depth for o in (await shop.view(bill)).outputs]))
        if seen[-1][0] == state:
            return
    raise AssertionError(seen)


async def test_what_a_monero_sender_locked_is_no_money(store: Store, monero: Monero) -> None:
    chain = MoneroWallet(
        monero.wallet_url, user=monero.user, password=monero.password, daemon_url=monero.daemon_url
    )
    try:
        shop = open_shop(store, chain)
        bill = await shop.order(sats=200_000, account=await shop.buyer())
        monero.pay(bill.invoice.address, bill.invoice.price.atomic, unlock_time=monero.height() + 500)
        monero.mine(11)
        await shop.look()
        assert await shop.state(bill) == "awaiting"
        assert await shop.sats() == (0, 0)
    finally:
        await chain.close()
