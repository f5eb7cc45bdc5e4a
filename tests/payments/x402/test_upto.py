"""`upto` on a real chain through the real Permit2: what is needed moves, once, to us, and no more than was signed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.money.buckets import settle_account
from sandboxer.payments.lifecycle import State
from sandboxer.payments.x402.ways import Way
from sandboxer.store.engine import Store
from testchains.evm import Anvil
from testchains.evm.permit2 import deploy_permit2
from tests.payments.x402.conftest import SHOP, Desk, open_desk
from tests.payments.x402.upto import UPTO, pay_upto, ready_wallet


@pytest.fixture
async def upto(evm: Anvil, sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    deploy_permit2(evm)
    async with open_desk(evm, sqlite_store, tmp_path, network=UPTO) as opened:
        yield opened


@pytest.fixture
def wallet(upto: Desk) -> str:
    return ready_wallet(upto.chain)


def way_of(desk: Desk) -> Way:
    way = desk.x402.ways.find(desk.chain.network, "upto")
    assert way is not None
    return way


async def credited(desk: Desk, account: str) -> int:
    now = desk.clock.now()
    return (await desk.store.write(lambda conn: settle_account(conn, account, now=now))).posted


async def test_all_of_it_moves_where_all_of_it_is_needed(upto: Desk, wallet: str) -> None:
    payload = await pay_upto(wallet, await upto.offer(1000))
    before = upto.chain.balance(SHOP)
    paid = await upto.buy(payload)
    assert paid.state is State.CONFIRMED
    assert upto.chain.balance(SHOP) - before == paid.amount == int(payload.accepted.amount)
    assert await credited(upto, paid.account) == 1000
