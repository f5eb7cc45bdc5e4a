"""Nodes that lie, forget or come back as somebody else; and ten thousand invoices at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Connection, insert, select

from sandboxer.kernel.errors import ChainUnavailable, NoCapacity, NoRate, TooManyRequests
from sandboxer.money.buckets import credit
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.invoices import reconciler as watching
from sandboxer.payments.invoices.records import InvoicePolicy
from sandboxer.payments.invoices.use_cases import Order
from sandboxer.payments.rate_sources import FixedRates
from sandboxer.payments.tables import invoices
from sandboxer.store.engine import Store
from tests.support.payments.memory_chain import MemoryChain
from tests.support.payments.shop import BUYER, USD, Shop, open_shop

PRICE = 750_000_000


@pytest.fixture
def chain() -> MemoryChain:
    return MemoryChain()


@pytest.fixture
def shop(store: Store, chain: MemoryChain) -> Shop:
    return open_shop(store, chain)


async def test_a_depth_beyond_the_height_of_the_chain_is_not_believed(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    txid = chain.pay(bill.invoice.address, PRICE)
    chain.mine()
    chain.lies[txid] = {"confirmations": 100}
    await shop.look()
    assert await shop.state(bill) == "confirming"
    assert (await shop.view(bill)).outputs[0].depth == 1


async def test_a_block_that_comes_between_two_questions_is_counted_by_the_next_look(
    shop: Shop, chain: MemoryChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill = await shop.order(account=await shop.buyer())
    chain.pay(bill.invoice.address, PRICE)
    chain.mine(5)
    await shop.look()
    with monkeypatch.context() as between:
        before = chain.height

        async def tip() -> int:
            chain.mine()
            return before

        between.setattr(chain, "tip", tip)
        await shop.look()
    assert (await shop.view(bill)).outputs[0].depth == 5
    await shop.look()
    assert await shop.state(bill) == "paid"


async def test_a_depth_without_a_block_is_not_believed(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    txid = chain.pay(bill.invoice.address, PRICE)
    chain.lies[txid] = {"confirmations": 100}
    await shop.look()
    assert await shop.state(bill) == "seen"


async def test_an_output_that_changes_its_amount_is_a_lie_and_moves_nothing(
    shop: Shop, chain: MemoryChain
) -> None:
    bill = await shop.order(account=await shop.buyer())
    txid = chain.pay(bill.invoice.address, 1000)
    await shop.look()
    chain.mine(6)
    chain.lies[txid] = {"amount": PRICE}
    with pytest.raises(ChainUnavailable):
        await shop.look()
    assert await shop.sats() == (0, 0)


async def test_payments_to_others_are_not_ours(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    txid = chain.pay(bill.invoice.address, PRICE)
    chain.mine(6)
    chain.lies[txid] = {"address": "somebody else"}
    await shop.look()
    assert await shop.state(bill) == "awaiting"


async def test_a_node_that_starts_anew_takes_nothing_back(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    chain.height = 10_000
    chain.pay(bill.invoice.address, PRICE)
    chain.mine(6)
    await shop.look()
    assert await shop.sats() == (1_000_000, 0)
    known, chain.paid, chain.height = chain.paid, {}, 3
    for _ in range(3):
        with pytest.raises(ChainUnavailable):
            await shop.look()
        # Also after a restart it is remembered how high the chain was.
        shop.restart()
    assert await shop.state(bill) == "paid"
    chain.paid, chain.height = known, 10_007
    await shop.look()
    assert await shop.sats() == (1_000_000, 0)


async def test_what_is_missing_from_one_look_only_is_not_taken_back(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    chain.pay(bill.invoice.address, PRICE)
    chain.mine(6)
    await shop.look()
    known, chain.paid = chain.paid, {}
    await shop.look()
    assert await shop.state(bill) == "paid"
    chain.paid = known
    await shop.look()
    assert await shop.sats() == (1_000_000, 0)
    chain.paid = {}
    await shop.look()
    await shop.look()
    assert await shop.state(bill) == "reorged"
    assert await shop.sats() == (0, 0)


async def test_what_the_sender_locked_is_no_money(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    chain.pay(bill.invoice.address, PRICE, is_unlocked=False)
    chain.mine(20)
    await shop.look()
    assert await shop.state(bill) == "awaiting"
    assert await shop.sats() == (0, 0)


async def test_a_payment_that_confirms_a_day_too_late_is_late(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    chain.pay(bill.invoice.address, PRICE)
    await shop.look()
    await shop.look(after=timedelta(hours=30))
    await shop.look()
    assert await shop.state(bill) == "underpaid"
    chain.mine(6)
    await shop.look()
    assert await shop.state(bill) == "credited"
    assert await shop.sats() == (1_000_000, 0)


async def test_a_node_down_for_days_makes_no_old_price_new(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(account=await shop.buyer())
    await shop.look()
    chain.is_down = True
    shop.clock.moment += timedelta(days=3)
    chain.is_down = False
    chain.pay(bill.invoice.address, PRICE)
    chain.mine(6)
    await shop.look()
    (output,) = (await shop.view(bill)).outputs
    assert not output.is_in_time
    await shop.look()
    assert await shop.state(bill) == "credited"


async def test_an_answer_that_takes_days_makes_no_old_price_new(
    shop: Shop, chain: MemoryChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill = await shop.order(account=await shop.buyer())
    await shop.look()
    ask = chain.deposits

    async def answer_days_later(addresses: Sequence[str]) -> list[Deposit]:
        """The host sleeps while it is asked; somebody pays; the host wakes."""
        shop.clock.moment += timedelta(days=3)
        chain.pay(bill.invoice.address, PRICE)
        chain.mine(6)
        return await ask(addresses)

    with monkeypatch.context() as asleep:
        asleep.setattr(chain, "deposits", answer_days_later)
        await shop.look()
    (output,) = (await shop.view(bill)).outputs
    assert not output.is_in_time
    await shop.look()
    assert await shop.state(bill) == "credited"


async def test_a_dearer_payment_may_take_the_place_of_one_that_was_in_time(
    shop: Shop, chain: MemoryChain
) -> None:
    bill = await shop.order(account=await shop.buyer())
    first = chain.pay(bill.invoice.address, PRICE)
    await shop.look()
    await shop.look(after=timedelta(hours=2))
    chain.double_spend(first)
    chain.pay(bill.invoice.address, PRICE)
    chain.mine(6)
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)


async def test_a_refund_that_was_not_sent_is_withdrawn_with_its_payment(
    shop: Shop, chain: MemoryChain
) -> None:
    bill = await shop.order(tier=1, months=1, refund_address="home")
    chain.pay(bill.invoice.address, bill.invoice.price.atomic // 2)
    chain.mine(6)
    await shop.look(after=timedelta(hours=2))
    assert await shop.state(bill) == "refund_due"
    chain.reorg(6, keep=False)
    await shop.look()
    assert await shop.state(bill) == "expired"
    assert [one.state for one in await shop.refunds()] == ["withdrawn"]


async def test_no_rate_no_new_invoice_except_in_bitcoin(store: Store, chain: MemoryChain) -> None:
    shop = open_shop(store, chain)
    shop.rates.is_gone = True
    with pytest.raises(NoRate):
        await shop.order()
    chain.code = "BTC"
    bitcoin = open_shop(store, chain)
    bitcoin.rates.is_gone = True
    assert (await bitcoin.order(sats=5000)).invoice.price.atomic == 5000
    # A tier is priced in dollars.
    with pytest.raises(NoRate):
        await bitcoin.order(tier=1, months=1)


async def test_used_addresses_are_skipped_and_indexes_never_given_twice(
    shop: Shop, chain: MemoryChain
) -> None:
    chain.used = {0, 1, 2}
    async with asyncio.TaskGroup() as group:
        orders = [group.create_task(shop.order()) for _ in range(10)]
    assert sorted(one.result().invoice.index for one in orders) == list(range(3, 13))


async def test_an_index_for_which_the_node_had_no_answer_is_taken_by_the_next_order(
    shop: Shop, chain: MemoryChain
) -> None:
    """Strangers who ask again and again while a node is down burn no addresses."""
    chain.is_down = True
    for _ in range(5):
        with pytest.raises(ChainUnavailable):
            await shop.order()
    chain.is_down = False
    assert [(await shop.order()).invoice.index for _ in range(3)] == [0, 1, 2]


async def test_open_invoices_are_capped_for_one_and_for_all(store: Store, chain: MemoryChain) -> None:
    shop = open_shop(store, chain, policy=InvoicePolicy(open_per_address=2, open_in_all=3))
    for _ in range(2):
        await shop.order()
    with pytest.raises(TooManyRequests):
        await shop.order()
    await shop.order(asked_by="another")
    with pytest.raises(NoCapacity):
        await shop.order(asked_by="a third")
    await shop.look(after=timedelta(hours=1))
    await shop.order()


async def test_one_ipv6_site_has_one_share_and_does_not_close_invoicing(
    store: Store, chain: MemoryChain
) -> None:
    """A /48 holds 65,536 networks of subscribers, each of which would have a share of its own."""
    shop = open_shop(store, chain, policy=InvoicePolicy(open_per_network=5, open_in_all=100))
    for n in range(5):
        await shop.order(asked_by=f"2001:db8:7:{n:x}::/64")
    with pytest.raises(TooManyRequests) as refused:
        await shop.order(asked_by="2001:db8:7:ffff::/64")
    assert refused.value.facts["per"] == "network"
    await shop.order(asked_by="2001:db8:8:1::/64")
    for n in range(5):
        await shop.order(asked_by=f"203.0.113.{n}")
    with pytest.raises(TooManyRequests):
        await shop.order(asked_by="203.0.113.77")


async def test_strangers_together_leave_room_for_accounts_with_funds(
    store: Store, chain: MemoryChain
) -> None:
    shop = open_shop(store, chain, policy=InvoicePolicy(open_in_all=10, open_per_address=3))
    for n in range(8):
        await shop.order(asked_by=f"192.0.{n}.1")
    for poor in (None, "acc_nobody"):
        with pytest.raises(NoCapacity, match="with funds"):
            await shop.order(asked_by="198.51.100.1", caller=poor)
    await shop.buyer()
    with pytest.raises(NoCapacity):
        await shop.order(asked_by="198.51.100.1", caller=BUYER)

    def fund(conn: Connection) -> None:
        credit(conn, BUYER, 1000, id="funds", reason="test", now=shop.clock.now())

    await store.write(fund)
    for _ in range(2):
        await shop.order(asked_by="192.0.0.1", caller=BUYER)
    with pytest.raises(NoCapacity):
        await shop.order(asked_by="192.0.0.1", caller=BUYER)


async def test_orders_side_by_side_do_not_pass_the_cap_and_burn_no_index(
    store: Store, chain: MemoryChain
) -> None:
    shop = open_shop(store, chain, policy=InvoicePolicy(open_per_address=3))
    async with asyncio.TaskGroup() as group:
        orders = [group.create_task(_refused(shop)) for _ in range(12)]
    assert sorted(one.result() for one in orders) == [False] * 3 + [True] * 9
    indexes = [(await shop.order(asked_by=f"192.0.{n}.1")).invoice.index for n in range(9)]
    assert max(indexes) == 11


async def _refused(shop: Shop) -> bool:
    try:
        await shop.order()
    except TooManyRequests:
        return True
    return False


async def test_the_loop_wakes_for_a_new_invoice_and_rides_out_a_dead_node(
    store: Store, chain: MemoryChain
) -> None:
    shop = open_shop(store, chain, policy=InvoicePolicy(poll_s=0.01))
    naps: list[timedelta] = []

    async def sleep(delay: timedelta) -> None:
        naps.append(delay)
        shop.clock.moment += delay
        await asyncio.sleep(0.001)

    shop.clock.sleep = sleep  # type: ignore[method-assign]
    running = asyncio.create_task(shop.watcher.run())
    try:
        await asyncio.sleep(0.05)
        assert chain.asked == []
        chain.is_down = True
        chain.is_down = False
        bill = await shop.order(account=await shop.buyer())
        chain.is_down = True
        chain.pay(bill.invoice.address, PRICE)
        chain.mine(6)
        await _until(lambda: max(naps, default=timedelta(0)) == watching.LONGEST_PAUSE or len(naps) > 12)
        chain.is_down = False
        async with asyncio.timeout(10):
            while await shop.state(bill) != "paid":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert await shop.sats() == (1_000_000, 0)


async def test_ten_thousand_open_invoices_are_cheap_to_watch(store: Store, chain: MemoryChain) -> None:
    shop = open_shop(store, chain, policy=InvoicePolicy(open_per_address=20_000, open_in_all=20_000))
    await _fill(shop, 10_000)
    await shop.look(after=timedelta(seconds=1))
    chain.asked.clear()
    began = time.process_time()
    await shop.look(after=timedelta(seconds=1))
    # Loosely, since the processor may be busy with others; what was asked says the rest.
    assert time.process_time() - began < 10
    assert chain.asked == [watching.BATCH] * (10_000 // watching.BATCH)


async def _fill(shop: Shop, count: int) -> None:
    """Many at once, in one statement: asking for each would test the store, not the watcher."""
    model = await shop.use_cases.create(Order(asset="LTC", asked_by="test", sats=5000))

    def add(conn: Connection) -> None:
        row = dict(conn.execute(select(invoices)).one()._mapping)
        more = [
            row | {"id": f"inv_{n:026d}", "address_index": n, "address": f"address{n}"}
            for n in range(model.invoice.index + 1, count)
        ]
        conn.execute(insert(invoices), more)

    await shop.store.write(add)


async def _until(is_so: object) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_locked_price_is_for_the_invoiced_amount_and_nothing_more(
    shop: Shop, chain: MemoryChain
) -> None:
    """A lock on more would be a free option: wait until the coin has fallen, then pay a thousandfold."""
    bill = await shop.order(sats=1000, account=await shop.buyer())
    shop.rates.fixed = FixedRates({**USD, "LTC": USD["LTC"] / 100}, shop.clock)
    chain.pay(bill.invoice.address, bill.invoice.price.atomic * 1000)
    chain.mine(12)
    shop.rates.is_gone = True
    await shop.look()
    assert (await shop.state(bill), await shop.sats()) == ("confirming", (0, 0)), "it waits for a rate"
    shop.rates.is_gone = False
    await shop.look()
    assert await shop.state(bill) == "over"
    sats, _ = await shop.sats()
    assert 1000 + 9_800 < sats < 1000 + 10_100, sats
    await shop.check_books()


async def test_too_much_is_delivered_again_after_a_reorg_took_it_back(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(tier=1, months=1, account=await shop.buyer())
    chain.pay(bill.invoice.address, bill.invoice.price.atomic * 2)
    chain.mine(6)
    await shop.look()
    assert await shop.state(bill) == "over"
    chain.reorg(6)
    await shop.look()
    await shop.look()
    assert await shop.state(bill) == "reorged"
    chain.mine(6)
    await shop.look()
    assert await shop.state(bill) == "over"
    await shop.check_books()


async def test_more_that_comes_later_is_worth_what_it_is_worth_then(shop: Shop, chain: MemoryChain) -> None:
    bill = await shop.order(sats=1000, account=await shop.buyer())
    atomic = bill.invoice.price.atomic
    chain.pay(bill.invoice.address, atomic)
    chain.mine(12)
    await shop.look()
    assert await shop.sats() == (1000, 0)
    shop.rates.fixed = FixedRates({**USD, "LTC": USD["LTC"] / 100}, shop.clock)
    chain.pay(bill.invoice.address, atomic * 100)
    chain.mine(12)
    await shop.look()
    sats, _ = await shop.sats()
    assert 1980 <= sats <= 2010, sats
    await shop.check_books()


async def test_a_payment_replaced_long_after_the_expiry_is_late(shop: Shop, chain: MemoryChain) -> None:
    """Wallets raise a fee within the hour; a day later it is an old rate that somebody liked."""
    bill = await shop.order(sats=1000, account=await shop.buyer())
    atomic = bill.invoice.price.atomic
    first = chain.pay(bill.invoice.address, atomic // 2)
    await shop.look()
    shop.rates.fixed = FixedRates({**USD, "LTC": USD["LTC"] / 100}, shop.clock)
    chain.double_spend(first)
    await shop.look(after=timedelta(hours=20))
    await shop.look()
    chain.pay(bill.invoice.address, atomic)
    chain.mine(12)
    await shop.look(after=timedelta(hours=1))
    await shop.look()
    sats, _ = await shop.sats()
    assert sats < 100, sats
    await shop.check_books()
