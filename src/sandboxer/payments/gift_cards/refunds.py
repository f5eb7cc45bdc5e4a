"""A refund gives back what is left on a card: as sats, to the buyer's address, or to the giver."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.kernel.errors import Conflict
from sandboxer.money.ledger import insert_once, post_transfer
from sandboxer.money.transfers import Transfer
from sandboxer.payments.credits import external
from sandboxer.payments.gift_cards import ledger, repository
from sandboxer.payments.gift_cards.ledger import cancel_pending
from sandboxer.payments.gift_cards.records import Card, CardSignal, Source
from sandboxer.payments.invoices import repository as invoice_book
from sandboxer.payments.invoices.records import Invoice, Output, RefundState, Settled
from sandboxer.payments.invoices.repository import refunds_topic
from sandboxer.payments.invoices.settlement import SOURCE as BY_INVOICE
from sandboxer.payments.invoices.tables import refunds
from sandboxer.payments.oracle.rates import Rate
from sandboxer.store.workers import announce


def give_back_free(conn: Connection, card: Card, *, now: datetime) -> None:
    """Take back what is left on a card that the operator gave away; nobody paid for it."""
    left = ledger.left_on(conn, card).posted
    id = f"gift:{card.id}:given_back"
    ledger.move(
        conn, id, card.ledger_id, ledger.OUTSIDE, left, kind="gift_given_back", reason=card.id, now=now
    )


def to_sats(
    conn: Connection, card: Card, account: str, btc: Rate, *, actor: str, now: datetime
) -> tuple[Card, int]:
    left = _rest(conn, card, actor=actor, now=now)
    id = f"gift:{card.id}:refund"
    sats = ledger.to_bucket(conn, card, left, btc, account=account, id=id, reason=card.id, now=now)
    return repository.move_card(conn, card, CardSignal.REFUND, actor=actor, now=now), sats


def to_address(
    conn: Connection, card: Card, address: str, *, percent: int, actor: str, now: datetime
) -> tuple[Card, int]:
    """Queue refunds for the operator to sign; each spends an output that paid for the card."""
    if card.invoice is None:
        raise Conflict(why="it was not paid by invoice", hint="Refund it to an account's sats.")
    left = _rest(conn, card, actor=actor, now=now)
    invoice = invoice_book.find(conn, card.invoice)
    outputs = [
        one
        for one in invoice_book.outputs_of(conn, invoice.id)
        if one.settled is Settled.CREDITED and one.is_for_price and one.is_money
    ]
    owed = invoice.price.atomic * left // card.cents * (100 - percent) // 100
    shares = split(owed, outputs)
    if not owed or sum(amount for _, amount in shares) < owed:
        raise Conflict(why="its payment cannot go back by itself", hint="Refund it to an account's sats.")
    for output, amount in shares:
        _queue(conn, card, output, amount, address, now)
    _post(conn, card, invoice, left, percent, now)
    return repository.move_card(conn, card, CardSignal.REFUND, actor=actor, now=now), owed


def split(owed: int, outputs: Sequence[Output]) -> list[tuple[Output, int]]:
    """Return how much of each output is refunded, the largest first. Pure."""
    shares = []
    for output in sorted(outputs, key=lambda one: (-one.amount, one.name)):
        amount = min(owed, output.amount)
        if amount:
            shares.append((output, amount))
        owed -= amount
    return shares


def _rest(conn: Connection, card: Card, *, actor: str, now: datetime) -> int:
    if card.source is Source.OPERATOR:
        raise Conflict(why="nobody paid for this card", hint="Revoke it.")
    cancel_pending(conn, card, reason="the card was refunded", actor=actor, now=now)
    left = ledger.left_on(conn, card).available
    if not left:
        raise Conflict(why="nothing is left on it")
    return left


def _queue(conn: Connection, card: Card, output: Output, amount: int, address: str, now: datetime) -> None:
    name = f"gift:{card.id}:{output.name}"
    values = {
        "id": "rfd_" + hashlib.sha256(name.encode()).hexdigest()[:32],
        "invoice": output.invoice,
        "chain": output.chain,
        "txid": output.txid,
        "output": output.output,
        "received": str(output.amount),
        "amount": str(amount),
        "kept": str(output.amount - amount),
        "address": address,
        "state": RefundState.QUEUED.value,
        "reason": "gift_card",
        "created_at": now,
        "updated_at": now,
    }
    insert_once(conn, refunds, values)
    announce(conn, refunds_topic(output.chain))


def _post(conn: Connection, card: Card, invoice: Invoice, left: int, percent: int, now: datetime) -> None:
    """Move the cents back to the stock, less what is kept, and the sats they had brought back outside."""
    back = left * (100 - percent) // 100
    id = f"gift:{card.id}:refund"
    ledger.move(
        conn, id, card.ledger_id, ledger.STOCK, back, kind="gift_refunded", reason=invoice.id, now=now
    )
    ledger.move(
        conn,
        f"{id}:kept",
        card.ledger_id,
        ledger.INCOME,
        left - back,
        kind="gift_restocking",
        reason=invoice.id,
        now=now,
    )
    if sats := invoice.price.sats * back // card.cents:
        out = Transfer(
            id=f"{id}:sats",
            debit=ledger.SATS_STOCK,
            credit=external(BY_INVOICE),
            amount=sats,
            kind="gift_refunded",
            reason=invoice.id,
            at=now,
        )
        post_transfer(conn, out)
