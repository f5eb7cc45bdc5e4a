"""Every state an invoice can be in, staged on a real Litecoin node (regtest)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sandboxer.kernel.errors import ChainUnavailable, Conflict, NotFound
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.invoices.records import InvoicePolicy, RefundState
from sandboxer.store.engine import Store, open_store
from testchains.litecoin import Litecoin
from tests.support.payments.shop import BUYER, Shop, open_shop

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# 1,000,000 sats are 600 dollars are 7.5 LTC.
PRICE = 750_000_000


@pytest.fixture
def database_url(tmp_path: object) -> str:
    return f"sqlite:///{tmp_path}/sandboxer.db"


@pytest.fixture
def shop(store: Store, litecoin_chain: CoreRpc) -> Shop:
    return open_shop(store, litecoin_chain)


async def test_exactly_paid_is_seen_then_confirming_then_paid_and_credited(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(account=await shop.buyer())
    assert bill.invoice.price.atomic == PRICE
    assert bill.uri.startswith(f"litecoin:{bill.invoice.address}?amount=7.5")
    await shop.look()
    assert await shop.state(bill) == "awaiting"
    litecoin.pay(bill.invoice.address, PRICE)
    await shop.look()
    assert await shop.state(bill) == "seen"
    for depth in range(1, 6):
        litecoin.mine()
        await shop.look()
        assert await shop.state(bill) == "confirming"
        assert (await shop.view(bill)).outputs[0].depth == depth
        assert await shop.sats() == (0, 0)
    litecoin.mine()
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)
    await shop.look()
    assert await shop.sats() == (1_000_000, 0)
    assert [step.state for step in (await shop.view(bill)).steps] == [
        "awaiting",
        "seen",
        "confirming",
        "paid",
    ]
    await shop.check_books()


async def test_a_new_account_gets_a_key_whose_secret_is_fetched_once_with_the_claim(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order()
    assert bill.claim is not None
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    await shop.look()
    paid = (await shop.view(bill)).invoice
    assert paid.state == "paid"
    assert paid.public_key is not None
    with pytest.raises(NotFound):
        await shop.key_life.reveal(paid.public_key, "another claim")
    key = await shop.key_life.reveal(paid.public_key, bill.claim.token)
    assert key.account == paid.account
    with pytest.raises(Conflict):
        await shop.key_life.reveal(paid.public_key, bill.claim.token)
    assert await shop.sats(paid.account) == (1_000_000, 0)


async def test_a_tier_is_bought_and_its_price_is_income(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(tier=4, months=3, account=await shop.buyer())
    # 4 × $7 × 3 less 7 %.
    assert bill.invoice.buys.cents == 7812
    litecoin.pay(bill.invoice.address, bill.invoice.price.atomic)
    litecoin.mine(6)
    await shop.look()
    account = await shop.account()
    assert (account.tier, account.entitled_until) == (4, shop.clock.now().replace(month=6))
    assert await shop.income() == bill.invoice.price.sats
    assert await shop.sats() == (0, 0)


async def test_two_payments_make_one_price_to_the_sat(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(account=await shop.buyer())
    litecoin.pay(bill.invoice.address, 333_333_333)
    await shop.look()
    assert await shop.state(bill) == "partial"
    litecoin.pay(bill.invoice.address, PRICE - 333_333_333)
    await shop.look()
    assert await shop.state(bill) == "seen"
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)


async def test_one_transaction_with_two_outputs_is_credited_per_output(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(account=await shop.buyer())
    half = PRICE // 2
    litecoin.pay_many([(bill.invoice.address, half), (bill.invoice.address, half)])
    litecoin.mine(6)
    await shop.look()
    assert await shop.sats() == (1_000_000, 0)
    assert len((await shop.view(bill)).outputs) == 2


async def test_what_was_too_much_becomes_sats(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(tier=1, months=1, account=await shop.buyer())
    asked = bill.invoice.price
    litecoin.pay(bill.invoice.address, asked.atomic * 3)
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "over"
    assert await shop.income() == asked.sats
    # The excess is valued by itself and rounded down.
    assert await shop.sats() == (asked.sats * 2 - 1, 0)


async def test_too_little_goes_back_less_nine_percent_from_the_very_output(
    shop: Shop, litecoin: Litecoin
) -> None:
    home = litecoin.call("getnewaddress")
    bill = await shop.order(tier=1, months=1, refund_address=home)
    sent = bill.invoice.price.atomic // 2
    txid = litecoin.pay(bill.invoice.address, sent)
    await shop.look()
    assert await shop.state(bill) == "partial"
    await shop.look(after=HOUR)
    assert await shop.state(bill) == "underpaid"
    assert await shop.refunds() == []
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "refund_due"
    (refund,) = await shop.refunds()
    assert (refund.txid, refund.address, refund.state) == (txid, home, RefundState.QUEUED)
    assert refund.amount == sent * 91 // 100
    assert refund.amount + refund.kept == sent
    back = litecoin.pay(home, refund.amount)
    await shop.use_cases.refund_sent(refund.id, back, actor="owner")
    await shop.look()
    assert await shop.state(bill) == "refunded"
    with pytest.raises(Conflict):
        await shop.use_cases.refund_sent(refund.id, "00" * 32, actor="owner")


async def test_too_little_without_a_way_back_becomes_sats_at_the_price_it_was_sent_for(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(tier=1, months=1)
    litecoin.pay(bill.invoice.address, bill.invoice.price.atomic // 2)
    await shop.look()
    litecoin.mine(6)
    await shop.look(after=HOUR)
    assert await shop.state(bill) == "credited"
    seen = (await shop.view(bill)).invoice
    assert seen.public_key is not None
    assert await shop.sats(seen.account) == (bill.invoice.price.sats // 2, 0)


async def test_a_late_payment_waits_for_a_rate_in_its_own_unit(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(account=await shop.buyer())
    await shop.look(after=HOUR)
    assert await shop.state(bill) == "expired"
    litecoin.pay(bill.invoice.address, PRICE)
    await shop.look()
    assert await shop.state(bill) == "late"
    shop.rates.is_gone = True
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "awaiting_rate"
    shop.restart()
    await shop.look()
    assert await shop.state(bill) == "awaiting_rate"
    assert await shop.sats() == (0, 0)
    shop.rates.is_gone = False
    await shop.look()
    assert await shop.state(bill) == "credited"
    assert await shop.sats() == (1_000_000, 0)


async def test_a_late_payment_goes_back_if_there_is_a_way(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(refund_address=litecoin.call("getnewaddress"))
    await shop.look(after=HOUR)
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "refund_due"
    assert (await shop.refunds())[0].reason == "late"


async def test_the_time_may_end_while_a_payment_confirms(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(account=await shop.buyer())
    litecoin.pay(bill.invoice.address, PRICE)
    await shop.look()
    litecoin.mine(2)
    await shop.look(after=2 * HOUR)
    assert await shop.state(bill) == "confirming"
    litecoin.mine(4)
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)


async def test_a_double_spend_is_noticed_and_a_new_payment_is_welcome(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(account=await shop.buyer())
    txid = litecoin.pay(bill.invoice.address, PRICE)
    await shop.look()
    assert await shop.state(bill) == "seen"
    litecoin.double_spend(txid)
    await shop.look()
    assert await shop.state(bill) == "double_spent"
    litecoin.mine(7)
    await shop.look()
    assert await shop.state(bill) == "double_spent"
    assert await shop.sats() == (0, 0)
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)


async def test_a_reorg_before_delivery_only_costs_time(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(account=await shop.buyer())
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(5)
    await shop.look()
    assert await shop.state(bill) == "confirming"
    litecoin.reorg(5)
    await shop.look()
    assert await shop.state(bill) == "seen"
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "paid"


async def test_a_reorg_after_delivery_takes_the_sats_back_and_spent_ones_become_debt(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(account=await shop.buyer())
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "paid"
    await _spend(shop, 400_000)
    litecoin.reorg(6)
    await shop.look()
    assert await shop.state(bill) == "reorged"
    assert await shop.sats() == (0, 400_000)
    await shop.check_books()
    litecoin.mine(6)
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (600_000, 0)
    assert (await shop.view(bill)).invoice.deliveries == 2
    await shop.check_books()


async def test_a_reorg_after_delivery_withdraws_a_tier_and_gives_it_back(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(tier=2, months=1, account=await shop.buyer())
    litecoin.pay(bill.invoice.address, bill.invoice.price.atomic)
    litecoin.mine(6)
    await shop.look()
    assert (await shop.account()).tier == 2
    litecoin.reorg(6)
    await shop.look()
    assert (await shop.account()).tier is None
    assert await shop.income() == 0
    litecoin.mine(6)
    await shop.look()
    assert (await shop.account()).tier == 2
    assert await shop.income() == bill.invoice.price.sats


async def test_a_small_reorg_that_leaves_the_payment_in_a_block_takes_nothing(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(account=await shop.buyer())
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    await shop.look()
    litecoin.reorg(3)
    await shop.look()
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)


async def test_dust_is_a_state_of_its_own_and_opens_no_account(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(refund_address=litecoin.call("getnewaddress"))
    litecoin.pay(bill.invoice.address, 60_000)
    await shop.look()
    assert await shop.state(bill) == "dust"
    assert not (await shop.view(bill)).invoice.is_settled
    litecoin.mine(6)
    await shop.look(after=HOUR)
    assert await shop.state(bill) == "dust"
    assert (await shop.view(bill)).invoice.is_settled
    assert await shop.refunds() == []
    with pytest.raises(NotFound):
        await shop.account(bill.invoice.account)


async def test_a_node_that_is_down_loses_nothing_and_is_not_the_payers_fault(
    shop: Shop, litecoin: Litecoin
) -> None:
    bill = await shop.order(account=await shop.buyer())
    await shop.look()
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    litecoin.pause()
    try:
        with pytest.raises(ChainUnavailable):
            await shop.look()
        assert await shop.state(bill) == "awaiting"
    finally:
        litecoin.resume()
    # The hour passed while nobody could look: what is found then was in time.
    await shop.look(after=2 * HOUR)
    assert await shop.state(bill) == "paid"
    assert await shop.sats() == (1_000_000, 0)


async def test_after_a_restored_backup_used_addresses_are_skipped(
    shop: Shop, litecoin: Litecoin, litecoin_chain: CoreRpc, tmp_path: object
) -> None:
    first = await shop.order()
    litecoin.pay(first.invoice.address, PRICE)
    litecoin.mine()
    other = open_store(f"sqlite:///{tmp_path}/older.db")
    try:
        again = await open_shop(other, litecoin_chain).order()
    finally:
        await other.close()
    assert again.invoice.index == first.invoice.index + 1
    assert again.invoice.address != first.invoice.address


async def test_a_restart_at_any_point_changes_nothing(shop: Shop, litecoin: Litecoin) -> None:
    bill = await shop.order(account=await shop.buyer())
    shop.restart()
    litecoin.pay(bill.invoice.address, PRICE)
    states = []
    for _ in range(8):
        shop.restart()
        await shop.look()
        states.append(await shop.state(bill))
        litecoin.mine()
    assert states == ["seen", *["confirming"] * 5, "paid", "paid"]
    assert await shop.sats() == (1_000_000, 0)
    await shop.check_books()


async def test_the_watch_ends_when_nothing_can_change_any_more(
    litecoin: Litecoin, store: Store, litecoin_chain: CoreRpc
) -> None:
    shop = open_shop(store, litecoin_chain, policy=InvoicePolicy(reorg_depth=8))
    bill = await shop.order(account=await shop.buyer())
    litecoin.pay(bill.invoice.address, PRICE)
    litecoin.mine(6)
    await shop.look()
    await shop.look(after=8 * DAY)
    assert len(shop.watcher._watched) == 1
    litecoin.mine(2)
    await shop.look()
    assert not shop.watcher._watched
    assert (await shop.view(bill)).invoice.watch_until is None


async def _spend(shop: Shop, sats: int) -> None:
    from sandboxer.money.buckets import spend  # noqa: PLC0415
    from sandboxer.money.ledger import INCOME  # noqa: PLC0415

    now = shop.clock.now()
    await shop.store.write(
        lambda conn: spend(conn, BUYER, sats, id="spent", to=INCOME, kind="spend", reason="test", now=now)
    )
