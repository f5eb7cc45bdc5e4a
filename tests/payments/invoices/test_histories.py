"""Random histories of payments, reorgs, silence and deaths: whatever happens, the books are whole, no output
is money twice, and in the end every coin that stayed on the chain was credited, refunded or kept."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from sandboxer.kernel.errors import ChainUnavailable, Unavailable
from sandboxer.money.tables import ledger_transfers
from sandboxer.payments.invoices.records import DELIVERED, InvoicePolicy, RefundState, Settled
from sandboxer.payments.invoices.use_cases import Ordered
from sandboxer.store.engine import Store, open_store
from tests.support.payments.memory_chain import MemoryChain
from tests.support.payments.shop import Shop, open_shop

POLICY = InvoicePolicy(reorg_depth=30, min_sats=1)


class Died(BaseException):
    """As a kill would: nothing below may catch it."""


@dataclass
class Mortal:
    """A store whose owner may die before or after any of its writes."""

    store: Store
    chance: random.Random
    risk: float = 0.15

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def write(self, fn: Any) -> Any:
        if self.chance.random() < self.risk:
            raise Died
        done = await self.store.write(fn)
        if self.chance.random() < self.risk:
            raise Died
        return done


@pytest.mark.parametrize("seed", range(12))
async def test_any_history_leaves_whole_books_and_nothing_paid_twice(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    chain = MemoryChain()
    store = open_store(f"sqlite:///{tmp_path}/histories.db")
    try:
        shop = open_shop(store, chain, policy=POLICY)
        public = await shop.buyer()
        bills = [await shop.order(**_wish(chance, public)) for _ in range(4)]
        for _ in range(60):
            _happen(chance, chain, shop, bills)
            await _look_mortally(shop, chance)
            await shop.check_books()
            await _no_output_is_money_twice(shop, bills)
        await _let_it_end(shop, chain, bills)
    finally:
        await store.close()


def _wish(chance: random.Random, public: str) -> dict[str, Any]:
    wish: dict[str, Any] = chance.choice([{"sats": 10_000}, {"tier": 2, "months": 1}])
    return {
        **wish,
        "account": chance.choice([None, public]),
        "refund_address": chance.choice([None, "home"]),
    }


def _happen(chance: random.Random, chain: MemoryChain, shop: Shop, bills: list[Ordered]) -> None:
    bill = chance.choice(bills).invoice
    price = bill.price.atomic
    match chance.randrange(11):
        case 0 | 1:
            amount = chance.choice([price, price // 2, price // 3, price * 2, max(1, price // 1000)])
            chain.pay(bill.address, amount)
        case 2 | 3 | 4 | 9:
            chain.mine(chance.randrange(1, 5))
        case 5 | 10:
            chain.reorg(chance.randrange(1, 20), keep=chance.random() < 0.7)
        case 6:
            waiting = [one.txid for one in chain.paid.values() if one.height is None]
            if waiting:
                chain.double_spend(chance.choice(waiting))
        case 7:
            chain.is_down = not chain.is_down
        case 8:
            shop.rates.is_gone = not shop.rates.is_gone
            shop.clock.moment += timedelta(minutes=chance.randrange(10))


async def _look_mortally(shop: Shop, chance: random.Random) -> None:
    """One look by a watcher that may die at any write; then another takes its place."""
    if chance.random() < 0.5:
        shop.restart()
    shop.watcher.store = Mortal(shop.store, chance)  # type: ignore[assignment]
    try:
        await shop.look(after=timedelta(minutes=chance.choice([1, 1, 1, 10])))
    except (Died, asyncio.CancelledError):
        shop.restart()
    except (ChainUnavailable, Unavailable):
        pass


async def _no_output_is_money_twice(shop: Shop, bills: list[Ordered]) -> None:
    """What the ledger says of each output is what its record says, and never more than its worth."""

    def moved(conn: Connection) -> dict[str, int]:
        net: dict[str, int] = {}
        for row in conn.execute(select(ledger_transfers).where(ledger_transfers.c.id.like("deposit:%"))):
            name = ":".join(row.id.split(":")[1:4])
            sign = -1 if "reversed" in row.id else 1
            net[name] = net.get(name, 0) + sign * row.amount
        return net

    net = await shop.store.read(moved)
    for bill in bills:
        view = await shop.view(bill)
        for output in view.outputs:
            recorded = output.sale_sats + output.bucket_sats
            assert net.get(output.name, 0) == recorded, output
            assert (recorded > 0) <= (output.settled is Settled.CREDITED)
        live = [one for one in view.refunds if one.state is not RefundState.WITHDRAWN]
        assert len({one.txid for one in live}) == len(live)


async def _let_it_end(shop: Shop, chain: MemoryChain, bills: list[Ordered]) -> None:
    chain.is_down = False
    shop.rates.is_gone = False
    shop.restart()
    for _ in range(4):
        chain.mine(40)
        await shop.look(after=timedelta(days=2))
        await shop.look()
    for bill in bills:
        view = await shop.view(bill)
        assert view.invoice.is_delivered is (view.invoice.state in DELIVERED)
        for output in view.outputs:
            if output.is_money:
                assert output.settled is not Settled.OPEN, (view.invoice.state, output)
            else:
                assert output.settled is Settled.OPEN
        steps = [step.number for step in view.steps]
        assert steps == list(range(len(steps)))
    await shop.check_books()
