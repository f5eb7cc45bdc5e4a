"""Agents and servers that are killed with -9 while an agent pays and works: it pays once, has one key, and
makes one child in each layer.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from sandboxer.payments import tables
from sandboxer.sdk.agent import loop
from sandboxer.sdk.agent.progress import End, Order, Progress, Step, Way, begin
from sandboxer.settings import Settings
from testchains.litecoin import Litecoin
from tests.support.agent_payers import outputs, own_coins, selling_for, walls
from tests.support.agent_runs import looks
from tests.support.dying_agent import MOMENTS
from tests.support.http.gift_cards import free_card
from tests.support.http.served import Served
from tests.support.platforms import (
    ROOT,
)


async def died_everywhere(
    served: Served, folder: Path, order: Order, *node: str, meanwhile: Callable[[Progress], None]
) -> list[str]:
    """Runs the file until it is over, in programs that kill themselves; returns at which moments."""
    file = loop.StateFile(folder / "run.json")
    file.write(begin(order, now=0.0))
    words = ["-m", "tests.support.dying_agent", str(folder), served.url, *node]
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT)
        ending = asyncio.ensure_future(process.wait())
        async for _ in looks(90):
            if ending.done():
                break
            if (known := file.read()) is not None:
                await asyncio.to_thread(meanwhile, known)
        code = ending.result()
    assert code == 0, file.read()
    return (folder / MOMENTS).read_text().splitlines()


async def strangers_keys(served: Served) -> list[str]:
    listed = (await served.client.get("/v1/keys")).json()["keys"]
    return [one["public_key"] for one in listed if one["public_key"] != served.owner.public_key]


async def assert_made_once(served: Served, folder: Path) -> None:
    """It has its result, the one key that there is, and had one child."""
    known = loop.StateFile(folder / "run.json").read()
    assert known is not None
    assert known.result is not None, known.trouble
    assert (known.end, known.result.output) == (End.DONE, "paid for\n")
    assert known.key is not None
    assert await strangers_keys(served) == [known.key.public_key]
    made = (await served.client.get("/v1/sandboxes?state=destroyed&limit=100")).json()["sandboxes"]
    assert [one["id"] for one in made] == [known.child and known.child.id]


def bought(url: str, way: Way, **more: Any) -> Order:
    return Order(depth=1, task="echo paid for", url=url, way=way, budget_sats=2_000, **more)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_killed_at_each_moment_of_an_invoice_it_sends_one_payment(
    litecoin: Litecoin, tmp_path: Path
) -> None:
    async with walls(tmp_path, selling_for(litecoin, tmp_path), limit_address=100_000) as served:
        coins = own_coins(litecoin, tmp_path)

        def mine(known: Progress) -> None:
            if known.step is Step.POLL_CONFIRMATION:
                litecoin.mine()

        order = bought(served.url, Way.INVOICE, coin="LTC")
        node = litecoin.url, litecoin.user
        moments = await died_everywhere(served, tmp_path, order, *node, meanwhile=mine)
        assert {"send_payment: signs", "send_payment: signed", "send_payment: broadcast it"} < set(moments)
        await assert_made_once(served, tmp_path)
        assert await outputs(served) == 1
        invoices = (await served.client.get("/v1/invoices")).json()["invoices"]
        assert [one["state"] for one in invoices] == ["paid"]
        # What was signed and never sent counts once, too.
        assert len(coins.open().content.journal) == 1
        print(f"{len(moments)} deaths: {moments}")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_killed_at_each_moment_of_a_gift_card_it_redeems_it_once(tmp_path: Path) -> None:
    plain = Settings.model_validate({"fixed_rates": {"BTC": "60000"}, "port": 0, "host": "127.0.0.1"})
    async with walls(tmp_path, plain, limit_auth=1_000, limit_address=100_000) as served:
        card = await free_card(served, cents=700)
        order = bought(served.url, Way.GIFT_CARD, gift_code=card["code"])
        moments = await died_everywhere(served, tmp_path, order, meanwhile=lambda known: None)
        assert {"send_payment: asks POST /v1/gift-cards", "send_payment: heard POST /v1/gift-cards"} < set(
            moments
        )
        await assert_made_once(served, tmp_path)
        redeemed = await served.platform.store.read(
            lambda conn: [row.cents for row in conn.execute(select(tables.gift_redemptions))]
        )
        assert redeemed == [700]
        print(f"{len(moments)} deaths: {moments}")
