"""Acts of invoices and gift cards: paid exactly, more, less, late; bought, given on, redeemed by others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sandboxer.accounts import records
from sandboxer.payments.gift_cards.records import Source
from sandboxer.payments.gift_cards.redemption import Ask
from sandboxer.payments.gift_cards.use_cases import CardOrder
from sandboxer.payments.invoices.use_cases import Order
from tests.money.model.lives import pick
from tests.money.model.nodes import LitecoinIndex
from tests.money.model.people import Person
from tests.money.model.schedule import Run

RATES = {"BTC": "100000", "USDC": "1", "LTC": "80", "STX": "2"}
SETTINGS: dict[str, Any] = {
    "gift_cards": {"min_cents": 7, "attempts_per_minute": 100_000},
    "fixed_rates": RATES,
}
CENTS = 40
SATS_PER_CENT = 10
DEEP = 12
# What the coin falls to, from 80 dollars, before somebody pays far too much or too late.
FALLEN = "0.80"
FALLEN_CENTS, BTC_CENTS = 80, 10_000_000


@dataclass
class Bill:
    owner: Person
    address: str
    atomic: int
    sats: int
    # What may be credited for it at the most; the servers of a schedule may be away until it is late.
    most: int = 0


def ltc_of(run: Run) -> LitecoinIndex:
    found: LitecoinIndex = run.extras["ltc"]
    return found


def bills(run: Run) -> list[Bill]:
    found: list[Bill] = run.extras.setdefault("bills", [])
    return found


async def public_id(run: Run, person: Person) -> str:
    return (await run.world.read(lambda conn: records.load(conn, person.account))).public_id


async def order(run: Run) -> None:
    await order_for(run, pick(run), run.dice.choice((1000, 5000)))


async def order_for(run: Run, person: Person, sats: int) -> Bill:
    wish = Order(asset="LTC", asked_by=person.name, sats=sats, account=await public_id(run, person))
    made = await run.world.platform.payments.invoices.create(wish)
    assert person.may_act, f"{person.name} is {person.status} and was sold sats"
    price = made.invoice.price
    bill = Bill(person, made.invoice.address, price.atomic, price.sats)
    bills(run).append(bill)
    return bill


async def pay_bill(run: Run) -> None:
    """Once for each bill, so that what it is worth is known."""
    unpaid = [one for one in bills(run) if not one.most]
    if unpaid:
        await pay_as(run, run.dice.choice(unpaid), run.dice.choice(("exact", "over", "partial", "late")))


async def pay_as(run: Run, bill: Bill, how: str) -> None:
    run.touched = f"invoice:{how}"
    chain = ltc_of(run)
    if how == "exact":
        chain.pay(bill.address, bill.atomic)
        bill.most = bill.sats
    elif how == "partial":
        chain.pay(bill.address, bill.atomic // 2)
        bill.most = bill.sats
    else:
        # The coin falls, and only then somebody pays: the lock must not pay for that.
        _fall(run)
        if how == "late":
            await run.world.advance(timedelta(hours=30))
            await run.world.calm()
        many = 1 if how == "late" else 200
        chain.pay(bill.address, bill.atomic * many)
        locked = 0 if how == "late" else bill.sats
        # One unit of this coin is as small as one sat is of its own.
        now_worth = bill.atomic * many * FALLEN_CENTS // BTC_CENTS
        bill.most = locked + now_worth + 2
    chain.mine(DEEP)
    await run.world.live(timedelta(seconds=70))


def _fall(run: Run) -> None:
    """Now, and for every server that comes after this one."""
    run.world.platform.payments.rates._usd["LTC"] = Decimal(FALLEN)  # type: ignore[attr-defined]
    run.world.also({"fixed_rates": {**RATES, "LTC": FALLEN}})


async def buy_card(run: Run) -> None:
    await buy_card_for(run, pick(run, of=run.dice.choice(("child", "anyone"))))


async def buy_card_for(run: Run, person: Person) -> None:
    wish = CardOrder(
        cents=CENTS,
        source=Source.SATS,
        asked_by=person.name,
        account=person.account,
        key=person.caller.public_key,
    )
    made = await run.world.platform.payments.gift_cards.use_cases.create(wish)
    assert not person.is_child, f"{person.name} bought a gift card from a budget"
    assert person.may_act, f"{person.name} is {person.status} and gave sats away"
    person.spent_on_cards += CENTS * SATS_PER_CENT
    run.extras.setdefault("codes", []).append(made.code)


async def redeem_card(run: Run) -> None:
    codes = run.extras.setdefault("codes", [])
    if not codes:
        return
    person = pick(run)
    code = run.dice.choice(codes)
    ask = Ask(
        code=code, request_id=f"r{run.cast.number()}-of-the-model", account=await public_id(run, person)
    )
    # In case the server dies between the two: known as soon as it is asked for.
    done = await run.world.platform.payments.gift_cards.redeeming.redeem(ask)
    assert person.may_act, f"{person.name} is {person.status} and redeemed a card"
    codes.remove(code)
    assert done.left == 0
    person.outside += CENTS * SATS_PER_CENT
    person.ever += CENTS * SATS_PER_CENT


async def index_fails(run: Run) -> None:
    """It is down for a while, or its newest blocks lose: nobody's payment is that young."""
    chain = ltc_of(run)
    how = run.dice.choice(("down", "reorganised"))
    run.touched = f"index:{how}"
    if how == "reorganised":
        chain.reorganise(DEEP // 4)
    chain.is_down = how == "down"
    try:
        await run.world.live(timedelta(seconds=run.dice.choice((5, 70))))
    finally:
        chain.is_down = False


def count(run: Run) -> None:
    for bill in bills(run):
        bill.owner.most_paid += bill.most


ACTS = {
    "order": (4, order),
    "pay_bill": (5, pay_bill),
    "buy_card": (4, buy_card),
    "redeem_card": (3, redeem_card),
    "index_fails": (2, index_fails),
}
