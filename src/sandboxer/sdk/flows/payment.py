"""Flow 3: an agent pays by itself, by x402, in coins by invoice, and with gift cards.

Without a wallet it asks for every way to pay and pays by none: what is offered is held against the prices.
"""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from decimal import Decimal

from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.errors import InvalidRequest
from sandboxer.sdk.flows.suite import (
    Bench,
    Flow,
    NotOffered,
    NotTried,
    expect,
    expect_equal,
    refused,
    until,
)
from sandboxer.wire.invoices import NewInvoice
from sandboxer.wire.operations import payments

flow = Flow(3, "Payment: x402, coins by invoice, gift cards")
# How many of its smallest units are one coin.
UNITS = {"BTC": 10**8, "LTC": 10**8, "DOGE": 10**8, "XMR": 10**12}
SATS_A_COIN = 10**8
# What an invoice of a check is for: nobody pays it, and it has to be worth more than dust.
INVOICE_SATS = 100_000
TOP_UP_SATS = 500
# The paper's quotes hold for an hour.
LONGEST_INVOICE = timedelta(hours=24)
PARTS = 100
ENDS_OF_PAYMENTS = frozenset({"confirmed", "failed", "replaced", "not_found"})


async def _coins(bench: Bench) -> list[str]:
    await bench.demand_charged("invoice")
    coins = (await bench.client.account.pricing()).coins
    on = [one.coin for one in coins if one.is_on]
    if not on:
        why = ", ".join(f"{one.coin}: {one.reason}" for one in coins) or "no coin is set up"
        raise NotOffered(f"no invoice is given out here ({why})")
    return on


async def _networks(bench: Bench) -> set[str]:
    await bench.demand_charged("x402")
    networks = (await bench.client.account.pricing()).networks
    on = {one.network for one in networks if one.is_on}
    if not on:
        why = ", ".join(f"{one.network}: {one.reason}" for one in networks) or "no network is set up"
        raise NotOffered(f"nothing is paid by x402 here ({why})")
    return on


@flow.check("a 402 has to say to a machine how it can be paid")
async def a_402_offers_ways_to_pay_and_takes_nothing(bench: Bench) -> None:
    networks = await _networks(bench)
    answer = await bench.send("POST", payments.TOP_UP.path, {"sats": INVOICE_SATS}, signs=False)
    expect_equal(answer.status_code, 402, "the status of a top-up without a payment")
    header = answer.headers.get("payment-required")
    expect(header is not None, "it has no header payment-required")
    offers = json.loads(base64.b64decode(str(header)))["accepts"]
    expect(offers, "it offers nothing")
    for one in offers:
        expect(one["network"] in networks, f"it offers {one['network']}, which the price list does not have")
        expect(str(one["amount"]).isdecimal() and int(one["amount"]) > 0, f"{one['amount']} is no amount")
        expect(one.get("payTo") and one.get("asset"), "an offer does not say whom to pay, and in what")


@flow.check("what was paid for has to arrive, and once")
async def a_wallet_pays_and_the_account_has_the_sats(bench: Bench) -> None:
    await _networks(bench)
    if bench.payer is None:
        raise NotTried("no wallet was given (--key-file)")
    before = await bench.client.account.me()
    sats = min(bench.most_sats, TOP_UP_SATS)
    try:
        bought = await bench.paying().payments.top_up(sats, account=before.account.public_id)
    except InvalidRequest as error:
        raise NotTried(f"a top-up of {sats} sats is refused ({error})") from None
    payment_id = bought.payment.id

    async def is_over() -> bool:
        return (await bench.client.payments.get(payment_id)).state in ENDS_OF_PAYMENTS

    await until(is_over, "the payment is not over", within_s=60)
    paid = await bench.client.payments.get(payment_id)
    expect_equal(paid.state, "confirmed", "how the payment ended")
    after = await bench.client.account.me()
    bench.had_sats += sats
    expect_equal(after.money.balance - before.money.balance, paid.sats, "what the account has more")
    expect(paid.sats >= sats, f"{paid.sats} sats were credited, and {sats} paid for")


@flow.check("a rounded amount is an invoice that is never paid")
async def an_invoice_asks_for_its_price_exactly_at_an_address_of_its_own(bench: Bench) -> None:
    for coin in await _coins(bench):
        first, second = [await _invoice(bench, coin) for _ in range(2)]
        expect(first.address != second.address, f"two invoices in {coin} have one address")
        for bill in (first, second):
            exact = Decimal(bill.amount) * UNITS[coin]
            expect_equal(Decimal(bill.atomic), exact, f"the amount in the smallest unit of {coin}")
            expect(bill.address in bill.payment_uri, f"the URI of {coin} names another address")
            expect_equal((bill.state, bill.sats), ("awaiting", INVOICE_SATS), f"an invoice in {coin}")
            expect(bill.confirmations_needed >= 1, f"{coin} counts before it is in a block")
            lives = bill.expires_at - bill.created_at
            expect(timedelta() < lives <= LONGEST_INVOICE, f"an invoice in {coin} holds for {lives}")
            _expect_fair(bill, coin)


def _expect_fair(bill: NewInvoice, coin: str) -> None:
    """The amount has to be what the rates on the invoice give, up to a thousandth for rounding."""
    if bill.usd_rate is None or bill.btc_usd_rate is None:
        return
    fair = Decimal(bill.sats) / SATS_A_COIN * Decimal(bill.btc_usd_rate) / Decimal(bill.usd_rate)
    off = abs(Decimal(bill.amount) - fair) / fair
    expect(off < Decimal("0.001"), f"{bill.amount} {coin} are asked for, and its rates give {fair:.8f}")


async def _invoice(bench: Bench, coin: str, key: str | None = None) -> NewInvoice:
    mine = (await bench.client.account.me()).account.public_id
    return await bench.client.invoices.create(
        coin, sats=INVOICE_SATS, account=mine, idempotency_key=key or new_idempotency_key()
    )


@flow.check("an agent whose connection broke would pay twice")
async def an_invoice_that_is_asked_for_again_is_the_same(bench: Bench) -> None:
    coin = (await _coins(bench))[0]
    key = new_idempotency_key()
    first, again = [await _invoice(bench, coin, key) for _ in range(2)]
    expect_equal((again.id, again.address), (first.id, first.address), "the invoice that was asked for again")


@flow.check("an agent waits by asking until the coins are deep enough")
async def an_unpaid_invoice_waits_and_says_when_to_ask_again(bench: Bench) -> None:
    for coin in await _coins(bench):
        bill = await _invoice(bench, coin)
        async for seen in bench.client.invoices.follow(bill.id):
            expect_equal((seen.id, seen.state), (bill.id, "awaiting"), "what is told first")
            break
        seen = await bench.client.invoices.get(bill.id)
        expect_equal((seen.state, seen.received), ("awaiting", "0"), f"an invoice in {coin} that nobody paid")
        expect(seen.poll_after_s > 0 and not seen.is_settled, "it does not say when to ask again")


@flow.check("an agent without a wallet is given four words instead")
async def a_gift_card_is_redeemed_in_parts_and_the_rest_comes_back(bench: Bench) -> None:
    await bench.demand_charged("gift card")
    pricing = await bench.client.gift_cards.pricing()
    if pricing.sats_per_dollar is None:
        raise NotOffered("gift cards have no rate here")
    cents = pricing.min_cents
    me = await bench.demand_sats(-(-cents * (pricing.sats_per_dollar + 1) // 100), "a gift card")
    card = await bench.client.gift_cards.create(cents, pay_with="sats")
    bench.takes_back(_refund, bench, card.id)
    code = card.code or (await bench.client.gift_cards.code(card.id, claim=card.claim)).code
    expect_equal((await bench.client.gift_cards.balance(code)).left_cents, cents, "what the card is worth")
    between = (await bench.client.account.me()).money.balance
    part = await bench.client.gift_cards.redeem(code, cents=PARTS, account=me.account.public_id)
    expect_equal(part.state, "granted", "the redemption")
    credited = (await bench.client.account.me()).money.balance - between
    expect(credited > 0, "nothing was credited")
    left = (await bench.client.gift_cards.balance(code)).left_cents
    expect_equal(left, cents - PARTS, "what is left on the card")
    await _refund(bench, card.id)
    await refused(bench.client.gift_cards.redeem(code, cents=PARTS), 404, 409, what="words of an ended card")
    lost = me.money.balance - (await bench.client.account.me()).money.balance
    # Cents are worth whole sats, rounded down at each of the two ways back.
    expect(0 <= lost <= 2, f"of the card's price {lost} sats did not come back")


async def _refund(bench: Bench, card_id: str) -> None:
    if (await bench.client.gift_cards.get(card_id)).left_cents:
        await bench.client.gift_cards.refund(card_id, to="sats")
