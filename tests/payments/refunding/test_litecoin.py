"""Refunds paid by a hot wallet on a real Litecoin node (regtest), whatever happens in between."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments.chains.bitcoin import txid_of
from sandboxer.payments.chains.configuration import Cap
from sandboxer.payments.invoices.records import RefundState
from sandboxer.payments.invoices.use_cases import Ordered
from sandboxer.payments.wallet.agent import AgentWallet, create_wallet
from sandboxer.store.engine import Store
from testchains.litecoin import Litecoin
from tests.payments.refunding.payer import LTC, PASSWORD, Payer, open_payer
from tests.support.payments.shop import BUYER

HOUR = timedelta(hours=1)
S = RefundState
# 1,000,000 sats are 7.5 LTC; less 9 %.
PRICE = 750_000_000
BACK = PRICE * 91 // 100


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/sandboxer.db"


@pytest.fixture
def wallet(tmp_path: Path) -> AgentWallet:
    wallet = create_wallet(tmp_path / "hot.wallet", PASSWORD)
    wallet.set_cap("LTC", Cap(per_payment=10 * LTC, per_day=20 * LTC))
    return wallet


@pytest.fixture
async def payer(store: Store, wallet: AgentWallet, litecoin: Litecoin) -> AsyncIterator[Payer]:
    async with open_payer(store, wallet, litecoin.url) as opened:
        yield opened


async def late(payer: Payer, litecoin: Litecoin, amount: int = PRICE) -> tuple[Ordered, str]:
    """An invoice that was paid after its hour, so that a refund waits; and where that goes."""
    home = litecoin.call("getnewaddress")
    bill = await payer.shop.order(account=await payer.shop.buyer(), refund_address=home)
    await payer.shop.look(after=2 * HOUR)
    litecoin.pay(bill.invoice.address, amount)
    litecoin.mine(6)
    await payer.shop.look()
    assert await payer.shop.state(bill) == "refund_due"
    return bill, home


def received(litecoin: Litecoin, address: str, depth: int = 0) -> int:
    return int(litecoin.call("getreceivedbyaddress", address, depth) * LTC)


def inputs(litecoin: Litecoin, txid: str) -> list[tuple[str, str]]:
    tx: dict[str, Any] = litecoin.call("getrawtransaction", txid, True)
    return [(each["txid"], str(each["vout"])) for each in tx["vin"]]


async def test_a_late_payment_goes_back_less_nine_percent_from_the_very_output(
    payer: Payer, litecoin: Litecoin
) -> None:
    bill, home = await late(payer, litecoin)
    await payer.hot.look()
    refund = await payer.refund()
    assert refund.state is S.SENT
    assert refund.sent_txid is not None
    assert inputs(litecoin, refund.sent_txid) == [(refund.txid, refund.output)]
    assert received(litecoin, home) == refund.amount == BACK
    # The fee is paid from what is kept, and the rest of that is the wallet's.
    assert refund.fee is not None
    assert 0 < refund.fee < refund.kept == PRICE - BACK
    assert await payer.spender.balance() == refund.kept - refund.fee
    await payer.shop.look()
    assert await payer.shop.state(bill) == "refunded"
    litecoin.mine(1)
    await payer.hot.look()
    assert (await payer.refund()).state is S.SENT
    litecoin.mine(1)
    await payer.hot.look()
    assert (await payer.refund()).state is S.CONFIRMED
    await payer.shop.look()
    assert await payer.shop.state(bill) == "refunded"
    # It never was on an account, so no account was touched.
    assert await payer.shop.sats(BUYER) == (0, 0)
    assert await payer.shop.income() == 0
    await payer.shop.check_books()


async def eventually(is_so: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.1)


async def test_the_loop_wakes_for_a_new_refund_and_follows_it(payer: Payer, litecoin: Litecoin) -> None:
    async def is_in(state: S) -> bool:
        return (await payer.refund()).state is state

    async with own_tasks() as loops:
        loops.start(payer.hot.run(), name="refunds")
        await late(payer, litecoin)
        await eventually(lambda: is_in(S.SENT))
        litecoin.mine(2)
        await eventually(lambda: is_in(S.CONFIRMED))


@pytest.mark.parametrize("step", ["signed", "charged", "recorded", "broadcast"])
async def test_killed_at_any_step_the_payer_is_paid_once(
    payer: Payer, litecoin: Litecoin, database_url: str, tmp_path: Path, step: str
) -> None:
    _, home = await late(payer, litecoin)
    command = (sys.executable, "-m", "tests.payments.refunding.payer", database_url)
    child = await asyncio.create_subprocess_exec(
        *command, str(tmp_path / "hot.wallet"), litecoin.url, step, stderr=asyncio.subprocess.PIPE
    )
    _, said = await child.communicate()
    assert child.returncode == -signal.SIGKILL, said.decode()
    left = await payer.refund()
    assert left.state is (S.QUEUED if step in ("signed", "charged") else S.SENDING)
    assert received(litecoin, home) == (BACK if step == "broadcast" else 0)
    await payer.hot.look()
    done = await payer.refund()
    assert done.state is S.SENT
    if left.prepared_txid is not None:
        assert done.sent_txid == left.prepared_txid
    await payer.hot.look()
    litecoin.mine(2)
    await payer.hot.look()
    assert (await payer.refund()).state is S.CONFIRMED
    assert received(litecoin, home, 1) == BACK
    payer.wallet.set_cap("LTC", Cap(per_payment=10 * LTC, per_day=20 * LTC))
    assert len(payer.wallet.content.journal) == 1, "the cap was charged once"


async def test_what_is_above_a_cap_stays_queued_and_says_so(payer: Payer, litecoin: Litecoin) -> None:
    payer.wallet.set_cap("LTC", Cap(per_payment=BACK - 1, per_day=20 * LTC))
    _, home = await late(payer, litecoin)
    await payer.hot.look()
    held = await payer.refund()
    assert held.state is S.QUEUED
    assert held.held is not None
    assert "above the cap" in held.held
    assert held.prepared is None
    assert received(litecoin, home) == 0
    # The operator raises the cap, and it goes.
    payer.wallet.set_cap("LTC", Cap(per_payment=10 * LTC, per_day=20 * LTC))
    await payer.hot.look()
    assert (await payer.refund()).state is S.QUEUED, "not tried at every look"
    payer.shop.clock.moment += HOUR
    await payer.hot.look()
    sent = await payer.refund()
    assert (sent.state, sent.held) == (S.SENT, None)
    litecoin.mine(1)


async def test_a_days_cap_lets_the_next_one_wait_for_the_next_day(payer: Payer, litecoin: Litecoin) -> None:
    payer.wallet.set_cap("LTC", Cap(per_payment=10 * LTC, per_day=10 * LTC))
    await late(payer, litecoin)
    await late(payer, litecoin)
    await payer.hot.look()
    first, second = await payer.shop.refunds()
    assert (first.state, second.state) == (S.SENT, S.QUEUED)
    assert "a day" in second.held
    payer.shop.clock.moment += timedelta(hours=25)
    await payer.hot.look()
    assert [refund.state for refund in await payer.shop.refunds()] == [S.SENT, S.SENT]
    litecoin.mine(1)


async def test_the_operator_may_send_what_is_held_and_not_what_is_under_way(
    payer: Payer, litecoin: Litecoin
) -> None:
    payer.wallet.set_cap("LTC", Cap(per_payment=1, per_day=1))
    _, home = await late(payer, litecoin)
    await payer.hot.look()
    queued = await payer.refund()
    by_hand = litecoin.pay(home, queued.amount)
    await payer.shop.use_cases.refund_sent(queued.id, by_hand, actor="owner")
    await payer.hot.look()
    assert (await payer.refund()).sent_txid == by_hand
    payer.wallet.set_cap("LTC", Cap(per_payment=10 * LTC, per_day=20 * LTC))
    await late(payer, litecoin)
    sending = await payer.hot._sign(await payer.refund())
    with pytest.raises(Conflict, match="being sent"):
        await payer.shop.use_cases.refund_sent(sending.id, by_hand, actor="owner")
    await payer.hot.look()
    assert (await payer.refund()).state is S.SENT
    litecoin.mine(1)


async def test_a_node_that_is_down_keeps_it_waiting_and_nothing_is_lost(
    payer: Payer, litecoin: Litecoin
) -> None:
    _, home = await late(payer, litecoin)
    sending = await payer.hot._sign(await payer.refund())
    litecoin.pause()
    try:
        await payer.hot.look()
        down = await payer.refund()
        assert (down.state, down.prepared_txid) == (S.SENDING, sending.prepared_txid)
        assert down.held is not None
        assert "node" in down.held
    finally:
        litecoin.resume()
    await payer.hot.look()
    sent = await payer.refund()
    assert (sent.state, sent.sent_txid, sent.held) == (S.SENT, sending.prepared_txid, None)
    assert received(litecoin, home) == BACK
    litecoin.mine(1)


async def test_a_reorganisation_takes_payment_and_refund_and_brings_back_the_same(
    payer: Payer, litecoin: Litecoin
) -> None:
    bill, home = await late(payer, litecoin)
    await payer.hot.look()
    first = await payer.refund()
    litecoin.mine(2)
    await payer.hot.look()
    assert (await payer.refund()).state is S.CONFIRMED
    # Payment and refund are both out of the chain, waiting again.
    litecoin.reorg(8)
    await payer.shop.look()
    await payer.shop.look()
    assert (await payer.refund()).state is S.WITHDRAWN
    assert received(litecoin, home, 1) == 0
    litecoin.mine(7)
    await payer.shop.look()
    again = await payer.refund()
    assert (again.id == first.id, again.state) == (False, S.QUEUED)
    await payer.hot.look()
    await payer.hot.look()
    sent = await payer.refund()
    assert (sent.state, sent.sent_txid) == (S.CONFIRMED, first.sent_txid), "the very same transaction"
    assert received(litecoin, home, 1) == BACK
    await payer.shop.look()
    assert await payer.shop.state(bill) == "refunded"


async def test_a_payment_that_is_double_spent_takes_its_refund_with_it(
    payer: Payer, litecoin: Litecoin
) -> None:
    bill, home = await late(payer, litecoin)
    await payer.hot.look()
    sent = await payer.refund()
    assert sent.state is S.SENT
    litecoin.mine(1)
    litecoin.reorg(7)
    litecoin.double_spend(sent.txid)
    litecoin.mine(1)
    await payer.hot.look()
    for _ in range(3):
        await payer.shop.look()
    gone = await payer.refund()
    assert (gone.state, gone.held) == (S.WITHDRAWN, None)
    assert received(litecoin, home, 1) == 0
    await payer.hot.look()
    assert await payer.shop.state(bill) in ("expired", "double_spent")
    assert [refund.state for refund in await payer.shop.refunds()] == [S.WITHDRAWN]


async def test_what_the_network_refuses_waits_with_the_reason_and_the_same_is_tried_again(
    payer: Payer, litecoin: Litecoin
) -> None:
    bill, home = await late(payer, litecoin)
    sending = await payer.hot._sign(await payer.refund())
    assert sending.prepared is not None
    assert txid_of(sending.prepared) == sending.prepared_txid
    # The operator was quicker, with another transaction of the same output.
    (deposit,) = await payer.shop.chain.deposits([bill.invoice.address])
    other = await payer.spender.broadcast(await payer.spender.prepare(home, BACK - 1000, spend=deposit))
    litecoin.mine(1)
    await payer.hot.look()
    refused = await payer.refund()
    assert refused.state is S.QUEUED
    assert refused.held is not None
    assert "refuses" in refused.held
    payer.shop.clock.moment += HOUR
    await payer.again().look()
    assert (await payer.refund()).prepared_txid == sending.prepared_txid, "nothing else was signed"
    assert received(litecoin, home) == BACK - 1000
    await payer.shop.use_cases.refund_sent(refused.id, other, actor="owner")
    await payer.hot.look()
    assert (await payer.refund()).state is S.SENT
