"""A card gets its cents, and loses them again if the chain takes the payment back. Inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from sandboxer.kernel.errors import Broken
from sandboxer.payments.gift_cards import book, moves
from sandboxer.payments.gift_cards.records import KIND, Card
from sandboxer.payments.gift_cards.states import CARDS, CardSignal, RedemptionSignal
from sandboxer.payments.invoices.records import Invoice


def issue(conn: Connection, card: Card, *, debit: str, round: int, actor: str, now: datetime) -> Card:
    """The card holds its cents, less what was redeemed of a payment that the chain had taken back."""
    moves.open_books(conn, card, now=now)
    id = f"gift:{card.id}:issued:{round}"
    cents = card.cents - card.written_off
    moves.move(conn, id, debit, card.ledger_id, cents, kind="gift_issued", reason=card.id, now=now)
    moves.move(
        conn,
        f"{id}:loss",
        debit,
        moves.LOSS,
        card.written_off,
        kind="gift_loss_repaid",
        reason=card.id,
        now=now,
    )
    signal = CardSignal.PAID if card.revoked_at is None else CardSignal.PAID_REVOKED
    paid = book.move_card(conn, card, signal, actor=actor, now=now, written_off=0, paid_at=now)
    return note_empty(conn, paid, actor=actor, now=now)


def note_empty(conn: Connection, card: Card, *, actor: str, now: datetime) -> Card:
    """Spent, once nothing is left and nothing waits."""
    if (card.state, CardSignal.EMPTIED) not in CARDS or moves.left_on(conn, card).posted:
        return card
    return book.move_card(conn, card, CardSignal.EMPTIED, actor=actor, now=now)


def cancel_pending(conn: Connection, card: Card, *, reason: str, actor: str, now: datetime) -> None:
    """What waits for approval comes back to the card."""
    for one in book.pending_of(conn, card.id):
        moves.let_go(conn, one, reason=reason, now=now)
        book.move_redemption(conn, one, RedemptionSignal.CARD_ENDED, actor=actor, now=now, reason=reason)


class GiftCardGoods:
    """What an invoice of this kind buys. The sats go to the stock, the cents come from it: an exchange at the
    rate that the invoice had locked."""

    kind = KIND
    takes = moves.SATS_STOCK
    needs_account = False

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        card = self._card(conn, invoice)
        issue(conn, card, debit=moves.STOCK, round=invoice.deliveries, actor=book.ACTOR, now=now)
        return {"card": card.id, "cents": card.cents}

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        """What is left goes back to the stock; what was redeemed already is our loss."""
        card = self._card(conn, invoice)
        cancel_pending(conn, card, reason="its payment went back", actor=book.ACTOR, now=now)
        left = moves.left_on(conn, card).posted
        id = f"gift:{card.id}:taken_back:{invoice.deliveries}"
        common: dict[str, Any] = {"kind": "gift_taken_back", "reason": invoice.id, "now": now}
        moves.move(conn, id, card.ledger_id, moves.STOCK, left, **common)
        moves.move(conn, f"{id}:loss", moves.LOSS, moves.STOCK, card.cents - left, **common)
        book.move_card(
            conn, card, CardSignal.TAKEN_BACK, actor=book.ACTOR, now=now, written_off=card.cents - left
        )

    def _card(self, conn: Connection, invoice: Invoice) -> Card:
        if invoice.buys.reference is None:
            raise Broken(why=f"{invoice.id} buys a gift card and names none")
        return book.load_card(conn, invoice.buys.reference, lock=True)
