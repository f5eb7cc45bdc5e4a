"""The cents of gift cards move in the ledger; each transfer is named after what it is for.

    bought    exchange:usd_cents ──> gift:<card>      (the sats it was paid with: ──> exchange:sats)
    free      external:gift_cards ──> gift:<card>     given by the operator
    a tier    gift:<card> ──> income:gift_cards
    sats      gift:<card> ──> exchange:usd_cents, exchange:sats ──> external:gift_card ──> bucket
    waiting   gift:<card> ~~> income:gift_cards       held until it is approved, then let go and done anew

All cents that were ever put on cards are on cards, in income, back in the stock, or back outside. A card
loses its cents again if the chain takes its payment back. Everything here happens inside a transaction.

A refund gives back what is left on a card: as sats, to the buyer's address, or to the giver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection

from sandboxer.kernel.errors import Broken, Conflict
from sandboxer.money.ledger import (
    Balance,
    LockedRate,
    balance,
    exchange,
    find_transfer,
    open_account,
    post_transfer,
    void_pending,
)
from sandboxer.money.transfers import AccountKind, Asset, Phase, Transfer
from sandboxer.payments.credits import credit_final, external
from sandboxer.payments.gift_cards import repository
from sandboxer.payments.gift_cards.records import (
    CARDS,
    KIND,
    Card,
    CardSignal,
    Redemption,
    RedemptionSignal,
    Source,
)
from sandboxer.payments.invoices import repository as invoice_rows
from sandboxer.payments.invoices.records import Invoice, Output, RefundState, Settled
from sandboxer.payments.invoices.refunds import name_refund, queue_refund, withdraw_refund
from sandboxer.payments.invoices.settlement import SOURCE as BY_INVOICE
from sandboxer.payments.rates import CENTS_PER_USD, SATS_PER_BTC, Rate

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
    """Open every ledger account that a card's money may touch."""
    for id, kind in {**_CENTS, OUTSIDE: AccountKind.EXTERNAL}.items():
        open_account(conn, id=id, kind=kind, asset=Asset.USD_CENTS, now=now)
    open_account(conn, id=SATS_STOCK, kind=AccountKind.EXCHANGE, now=now)
    open_account(conn, id=external(SOURCE), kind=AccountKind.EXTERNAL, now=now)
    open_account(conn, id=card.ledger_id, kind=AccountKind.CARD, asset=Asset.USD_CENTS, now=now)


def left_on(conn: Connection, card: Card) -> Balance:
    """Return what is on the card: `available` can be redeemed, `held` waits for approval."""
    return balance(conn, card.ledger_id)


def move(
    conn: Connection, id: str, debit: str, credit: str, cents: int, *, kind: str, reason: str, now: datetime
) -> bool:
    """Move cents between ledger accounts; nothing moves for zero cents."""
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
    """Exchange cents for sats at the locked rate and credit them. Returns the sats."""
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


def issue(conn: Connection, card: Card, *, debit: str, round: int, actor: str, now: datetime) -> Card:
    """Put the cents on the card, less what had been redeemed before the chain took its payment back."""
    open_books(conn, card, now=now)
    id = f"gift:{card.id}:issued:{round}"
    cents = card.cents - card.written_off
    move(conn, id, debit, card.ledger_id, cents, kind="gift_issued", reason=card.id, now=now)
    move(
        conn,
        f"{id}:loss",
        debit,
        LOSS,
        card.written_off,
        kind="gift_loss_repaid",
        reason=card.id,
        now=now,
    )
    signal = CardSignal.PAID if card.revoked_at is None else CardSignal.PAID_REVOKED
    paid = repository.move_card(conn, card, signal, actor=actor, now=now, written_off=0, paid_at=now)
    return note_empty(conn, paid, actor=actor, now=now)


def note_empty(conn: Connection, card: Card, *, actor: str, now: datetime) -> Card:
    """Mark the card as spent once nothing is left and nothing waits for approval."""
    if (card.state, CardSignal.EMPTIED) not in CARDS or left_on(conn, card).posted:
        return card
    return repository.move_card(conn, card, CardSignal.EMPTIED, actor=actor, now=now)


def cancel_pending(conn: Connection, card: Card, *, reason: str, actor: str, now: datetime) -> None:
    """Cancel what waits for approval; the cents come back to the card."""
    for one in repository.pending_of(conn, card.id):
        let_go(conn, one, reason=reason, now=now)
        repository.move_redemption(
            conn, one, RedemptionSignal.CARD_ENDED, actor=actor, now=now, reason=reason
        )


class GiftCardGoods:
    """The goods of an invoice that buys a gift card: its sats go to the stock, and the cents come from it at
    the rate that the invoice locked.
    """

    kind = KIND
    takes = SATS_STOCK
    needs_account = False

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        card = self._card(conn, invoice)
        issue(conn, card, debit=STOCK, round=invoice.deliveries, actor=repository.ACTOR, now=now)
        return {"card": card.id, "cents": card.cents}

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        """Take back what is left on the card; what was redeemed already is the platform's loss."""
        card = self._card(conn, invoice)
        cancel_pending(conn, card, reason="its payment went back", actor=repository.ACTOR, now=now)
        _undo_refund(conn, card, invoice, now)
        left = left_on(conn, card).posted
        id = f"gift:{card.id}:taken_back:{invoice.deliveries}"
        common: dict[str, Any] = {"kind": "gift_taken_back", "reason": invoice.id, "now": now}
        move(conn, id, card.ledger_id, STOCK, left, **common)
        move(conn, f"{id}:loss", LOSS, STOCK, card.cents - left, **common)
        repository.move_card(
            conn, card, CardSignal.TAKEN_BACK, actor=repository.ACTOR, now=now, written_off=card.cents - left
        )

    def _card(self, conn: Connection, invoice: Invoice) -> Card:
        if invoice.buys.reference is None:
            raise Broken(why=f"{invoice.id} buys a gift card and names none")
        return repository.load_card(conn, invoice.buys.reference, lock=True)


def give_back_free(conn: Connection, card: Card, *, now: datetime) -> None:
    """Take back what is left on a card that the operator gave away; nobody paid for it."""
    left = left_on(conn, card).posted
    id = f"gift:{card.id}:given_back"
    move(conn, id, card.ledger_id, OUTSIDE, left, kind="gift_given_back", reason=card.id, now=now)


def refund_to_sats(
    conn: Connection, card: Card, account: str, btc: Rate, *, actor: str, now: datetime
) -> tuple[Card, int]:
    left = _rest(conn, card, actor=actor, now=now)
    id = f"gift:{card.id}:refund"
    sats = to_bucket(conn, card, left, btc, account=account, id=id, reason=card.id, now=now)
    return repository.move_card(conn, card, CardSignal.REFUND, actor=actor, now=now), sats


def refund_to_address(
    conn: Connection, card: Card, address: str, *, percent: int, actor: str, now: datetime
) -> tuple[Card, int]:
    """Queue refunds for the operator to sign; each spends an output that paid for the card."""
    if card.invoice is None:
        raise Conflict(why="it was not paid by invoice", hint="Refund it to an account's sats.")
    left = _rest(conn, card, actor=actor, now=now)
    invoice = invoice_rows.find(conn, card.invoice)
    outputs = [
        one
        for one in invoice_rows.outputs_of(conn, invoice.id)
        if one.settled is Settled.CREDITED and one.is_for_price and one.is_money
    ]
    owed = invoice.price.atomic * left // card.cents * (100 - percent) // 100
    shares = split(owed, outputs)
    if not owed or sum(amount for _, amount in shares) < owed:
        raise Conflict(why="its payment cannot go back by itself", hint="Refund it to an account's sats.")
    for output, amount in shares:
        id = name_refund(f"gift:{card.id}:{output.name}:{invoice.deliveries}")
        queue_refund(conn, output, id=id, address=address, amount=amount, reason=KIND, now=now)
    _post_refund(conn, card, invoice, left, percent, now)
    return repository.move_card(conn, card, CardSignal.REFUND, actor=actor, now=now), owed


def split(owed: int, outputs: Sequence[Output]) -> list[tuple[Output, int]]:
    """Return how much of each output is refunded, the largest first. Pure."""
    shares = []
    for output in sorted(outputs, key=lambda one: (-one.amount, one.name)):
        if amount := min(owed, output.amount):
            shares.append((output, amount))
        owed -= amount
    return shares


def _rest(conn: Connection, card: Card, *, actor: str, now: datetime) -> int:
    if card.source is Source.OPERATOR:
        raise Conflict(why="nobody paid for this card", hint="Revoke it.")
    cancel_pending(conn, card, reason="the card was refunded", actor=actor, now=now)
    if not (left := left_on(conn, card).available):
        raise Conflict(why="nothing is left on it", hint="All of it was redeemed or refunded before.")
    return left


def _post_refund(
    conn: Connection, card: Card, invoice: Invoice, left: int, percent: int, now: datetime
) -> None:
    """Move the cents back to the stock, less what is kept, and the sats they had brought back outside."""
    back = left * (100 - percent) // 100
    id = _refund_transfer(card, invoice)
    move(conn, id, card.ledger_id, STOCK, back, kind="gift_refunded", reason=invoice.id, now=now)
    move(
        conn,
        f"{id}:kept",
        card.ledger_id,
        INCOME,
        left - back,
        kind="gift_restocking",
        reason=invoice.id,
        now=now,
    )
    if sats := invoice.price.sats * back // card.cents:
        out = Transfer(
            id=f"{id}:sats",
            debit=SATS_STOCK,
            credit=external(BY_INVOICE),
            amount=sats,
            kind="gift_refunded",
            reason=invoice.id,
            at=now,
        )
        post_transfer(conn, out)


def _refund_transfer(card: Card, invoice: Invoice) -> str:
    """Name the refund of a card; one that was delivered again may be refunded again."""
    return f"gift:{card.id}:refund:{invoice.deliveries}"


def _undo_refund(conn: Connection, card: Card, invoice: Invoice, now: datetime) -> None:
    """Take a refund out of the queue, and put its cents back on the card, because its payment is gone:
    whoever signed it now would pay for it. One that was signed spends the payment itself, and goes down with
    it.
    """
    queued = [one for one in invoice_rows.refunds_of(conn, invoice.id) if one.reason == KIND]
    going = [one for one in queued if one.state is not RefundState.WITHDRAWN]
    if not going or any(one.state is not RefundState.QUEUED or one.prepared_txid for one in going):
        return
    for one in going:
        withdraw_refund(conn, one.id, now=now)
    id = _refund_transfer(card, invoice)
    for posted in (find_transfer(conn, f"{id}{part}") for part in ("", ":kept", ":sats")):
        if posted is not None:
            undone = f"{posted.id}:undone"
            post_transfer(conn, replace(posted, id=undone, debit=posted.credit, credit=posted.debit, at=now))
