"""How the cents of cards move in the ledger, each transfer named after what it is for.

    bought    exchange:usd_cents ──> gift:<card>      (the sats it was paid with: ──> exchange:sats)
    free      external:gift_cards ──> gift:<card>     given by the operator
    a tier    gift:<card> ──> income:gift_cards
    sats      gift:<card> ──> exchange:usd_cents, exchange:sats ──> external:gift_card ──> bucket
    waiting   gift:<card> ~~> income:gift_cards       held until it is approved, then let go and done anew

All cents that were ever put on cards are on cards, in income, back in the stock, or back outside.
"""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

from sqlalchemy import Connection

from sandboxer.money.exchange import LockedRate, exchange
from sandboxer.money.ledger import Balance, balance, open_account, post_transfer, void_pending
from sandboxer.money.transfers import AccountKind, Asset, Phase, Transfer
from sandboxer.payments.crediting import credit_final, external
from sandboxer.payments.gift_cards.records import Card, Redemption
from sandboxer.payments.oracle.conversion import CENTS_PER_USD, SATS_PER_BTC
from sandboxer.payments.oracle.rates import Rate

# In US cents.
STOCK = f"exchange:{Asset.USD_CENTS.value}"
INCOME = "income:gift_cards"
LOSS = "loss:gift_cards"
OUTSIDE = "external:gift_cards"
# In sats.
SATS_STOCK = f"exchange:{Asset.SATS.value}"
SOURCE = "gift_card"
_CENTS = {STOCK: AccountKind.EXCHANGE, INCOME: AccountKind.INCOME, LOSS: AccountKind.LOSS}


def open_books(conn: Connection, card: Card, *, now: datetime) -> None:
    """Every account that a card's money may touch."""
    for id, kind in {**_CENTS, OUTSIDE: AccountKind.EXTERNAL}.items():
        open_account(conn, id=id, kind=kind, asset=Asset.USD_CENTS, now=now)
    open_account(conn, id=SATS_STOCK, kind=AccountKind.EXCHANGE, now=now)
    open_account(conn, id=external(SOURCE), kind=AccountKind.EXTERNAL, now=now)
    open_account(conn, id=card.ledger_id, kind=AccountKind.CARD, asset=Asset.USD_CENTS, now=now)


def left_on(conn: Connection, card: Card) -> Balance:
    """`available` can be redeemed, `held` waits for approval."""
    return balance(conn, card.ledger_id)


def move(
    conn: Connection, id: str, debit: str, credit: str, cents: int, *, kind: str, reason: str, now: datetime
) -> bool:
    """Nothing moves for zero cents."""
    if not cents:
        return False
    return post_transfer(conn, _cents(id, debit, credit, cents, kind, reason, now))


def hold(conn: Connection, card: Card, one: Redemption, *, now: datetime) -> None:
    """Raises InsufficientCredit if less is left."""
    asked = _cents(one.hold_id, card.ledger_id, INCOME, one.cents, "gift_hold", one.id, now, Phase.PENDING)
    post_transfer(conn, asked)


def let_go(conn: Connection, one: Redemption, *, reason: str, now: datetime) -> None:
    void_pending(conn, one.hold_id, reason=reason, now=now)


def take_for_tier(conn: Connection, card: Card, one: Redemption, *, now: datetime) -> None:
    """Raises InsufficientCredit if less is left."""
    reason = f"tier {one.tier} for {one.months} months"
    move(
        conn,
        f"gift:{one.id}",
        card.ledger_id,
        INCOME,
        one.cents,
        kind="gift_redeemed",
        reason=reason,
        now=now,
    )


def take_for_sats(conn: Connection, card: Card, one: Redemption, btc: Rate, *, now: datetime) -> int:
    """Two transfers at the locked rate, then in by the one door; returns the sats."""
    return to_bucket(
        conn, card, one.cents, btc, account=one.account, id=f"gift:{one.id}", reason=card.id, now=now
    )


def to_bucket(
    conn: Connection,
    card: Card,
    cents: int,
    btc: Rate,
    *,
    account: str,
    id: str,
    reason: str,
    now: datetime,
) -> int:
    sats = exchange(
        conn,
        id=id,
        debit=card.ledger_id,
        credit=external(SOURCE),
        amount=cents,
        rate=locked(btc),
        reason=reason,
        now=now,
    )
    credit_final(conn, account, sats, id=f"{id}:in", source=SOURCE, now=now, reason=reason)
    return sats


def locked(btc: Rate) -> LockedRate:
    units = Fraction(SATS_PER_BTC, CENTS_PER_USD) / Fraction(btc.usd)
    return LockedRate(sold=Asset.USD_CENTS, bought=Asset.SATS, units=units)


def _cents(
    id: str,
    debit: str,
    credit: str,
    cents: int,
    kind: str,
    reason: str,
    now: datetime,
    phase: Phase = Phase.SINGLE,
) -> Transfer:
    return Transfer(
        id=id,
        debit=debit,
        credit=credit,
        amount=cents,
        kind=kind,
        reason=reason,
        at=now,
        asset=Asset.USD_CENTS,
        phase=phase,
    )
