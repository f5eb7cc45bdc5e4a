"""The server is killed at every step of an invoice's life, on a real Litecoin; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from embit.bip32 import HDKey
from sqlalchemy import select

from sandboxer.payments.tables import invoice_chains, invoices
from sandboxer.store.engine import open_store
from testchains.litecoin import Litecoin
from tests.payments.invoices.victim import live
from tests.support.payments.memory_chain import MemoryChain
from tests.support.payments.shop import START, Shop, open_shop

# One process has imported everything; each life is a fork of it.
LIVES = multiprocessing.get_context("forkserver")
LIVES.set_forkserver_preload(["tests.payments.invoices.victim"])
# More steps than any act has: whoever is alive then has done all of it.
ENOUGH = 40


@dataclass
class Killed:
    litecoin: Litecoin
    folder: Path
    now: Any = START
    deaths: int = 0

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder}/killed.db"

    async def through_every_death(self, act: str, **order: Any) -> str:
        """Run the act again and again, dying one step later each time, until one life was long enough."""
        for die_at in range(1, ENOUGH):
            self.now += timedelta(minutes=1)
            code, said = await self._live(act, die_at, order)
            if code == 0:
                return said
            assert code == -signal.SIGKILL, said
            self.deaths += 1
        raise AssertionError("it never survived")

    async def _live(self, act: str, die_at: int, order: dict[str, Any]) -> tuple[int, str]:
        plan = {
            "database": self.database,
            "node": self.litecoin.url,
            "user": self.litecoin.user,
            "password": self.litecoin.password,
            "xpub": HDKey.from_seed(str(self.folder).encode().ljust(64)[-64:]).to_public().to_base58(),
            "act": act,
            "order": order,
            "die_at": die_at,
            "now": self.now.isoformat(),
        }
        return await asyncio.to_thread(_one_life, plan)

    async def inspect(self, ask: Callable[[Shop], Any]) -> Any:
        store = open_store(self.database)
        try:
            shop = open_shop(store, MemoryChain())
            await shop.check_books()
            return await ask(shop)
        finally:
            await store.close()


def _one_life(plan: dict[str, Any]) -> tuple[int, str]:
    ours, theirs = LIVES.Pipe()
    child = LIVES.Process(target=live, args=(plan, theirs))
    child.start()
    child.join(60)
    code = child.exitcode
    assert code is not None, "it hangs"
    return code, ours.recv() if code == 0 else f"exit {code}"


@pytest.mark.timeout(300)
async def test_killed_at_every_step_it_delivers_once_takes_back_once_and_delivers_again(
    litecoin: Litecoin, tmp_path: Path
) -> None:
    killed = Killed(litecoin, tmp_path)
    public = await killed.inspect(lambda shop: shop.buyer())
    id = await killed.through_every_death("order", tier=2, months=1, account=public)
    rows = await killed.inspect(_rows)
    # Lives that died after an index was taken have spent it: none is given twice.
    assert len({index for _, index in rows["invoices"]}) == len(rows["invoices"])
    assert rows["next"] > max(index for _, index in rows["invoices"])
    bill = await killed.inspect(lambda shop: shop.use_cases.view(id))
    price = bill.invoice.price

    litecoin.pay(bill.invoice.address, price.atomic * 2)
    await killed.through_every_death("look")
    assert await killed.inspect(lambda shop: _state(shop, id)) == "seen"
    litecoin.mine(6)
    await killed.through_every_death("look")
    # The excess is converted by itself, rounded down.
    paid = (price.sats, price.sats - 1, 0, 2)
    assert await killed.inspect(_money) == paid
    litecoin.reorg(6)
    await killed.through_every_death("look")
    assert await killed.inspect(_money) == (0, 0, 0, None)
    litecoin.mine(6)
    await killed.through_every_death("look")
    assert await killed.inspect(_money) == paid
    assert killed.deaths >= 12


async def _state(shop: Shop, id: str) -> str:
    return (await shop.use_cases.view(id)).invoice.state.value


async def _money(shop: Shop) -> tuple[int, int, int, int | None]:
    """Income, bucket, debt, tier."""
    return (await shop.income(), *(await shop.sats()), (await shop.account()).tier)


async def _rows(shop: Shop) -> dict[str, Any]:
    def read(conn: Any) -> dict[str, Any]:
        made = conn.execute(select(invoices.c.id, invoices.c.address_index)).all()
        after = conn.execute(select(invoice_chains.c.next_index)).scalar_one()
        return {"invoices": [tuple(row) for row in made], "next": after}

    return dict(await shop.store.read(read))
