"""Refunds wait in a queue: the operator signs them, or a hot wallet sends them within its caps.

A refund spends the very output it returns. So a reorg that takes the payment takes its refund too, and a
refund that was sent twice by mistake is one transaction on the chain.

    queued ── send ──► sending ── sent ──► sent ── confirmed ──► confirmed
       ▲                  │                  ▲                       │
       └──── give_up ─────┘                  └─────── reorged ───────┘        each ── withdraw ──► withdrawn

An output that was never credited touches no ledger account, and neither does its refund. The network's fee is
paid out of `kept`, so the payer gets exactly `amount`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import Connection, and_, or_, select, update

from sandboxer.kernel.errors import Conflict
from sandboxer.money.ledger import insert_once
from sandboxer.observe.events import record
from sandboxer.payments.invoices.records import SENT_BACK, Output, Refund, RefundState
from sandboxer.payments.invoices.repository import MAX_PAGE, refund_from, refunds_topic, topic
from sandboxer.payments.tables import after_last, load_row, refunds
from sandboxer.store.steps import Lifecycle
from sandboxer.store.workers import announce

NOTHING: Mapping[str, str | None] = MappingProxyType({})

S = RefundState
TRANSITIONS: Mapping[tuple[RefundState, str], RefundState] = {
    (S.QUEUED, "send"): S.SENDING,
    # The network refuses what was signed. The very same is tried again, unless the operator does it.
    (S.SENDING, "give_up"): S.QUEUED,
    (S.QUEUED, "sent"): S.SENT,
    (S.SENDING, "sent"): S.SENT,
    (S.QUEUED, "withdraw"): S.WITHDRAWN,
    (S.SENDING, "withdraw"): S.WITHDRAWN,
    (S.SENT, "confirmed"): S.CONFIRMED,
    # Its block lost against another one.
    (S.CONFIRMED, "reorged"): S.SENT,
    # Only what is bound to its output goes down with it; see `Refund.is_bound`.
    (S.SENT, "withdraw"): S.WITHDRAWN,
    (S.CONFIRMED, "withdraw"): S.WITHDRAWN,
}


next_refund_state = Lifecycle(TRANSITIONS).next_state


def name_refund(text: str) -> str:
    """Return the id of the refund that this text tells apart from all others."""
    return "rfd_" + hashlib.sha256(text.encode()).hexdigest()[:32]


def queue_refund(
    conn: Connection, output: Output, *, id: str, address: str, amount: int, reason: str, now: datetime
) -> None:
    """Queue so much of an output to go back; the rest is kept. The same id is queued once."""
    values = {
        "id": id,
        "invoice": output.invoice,
        "chain": output.chain,
        "txid": output.txid,
        "output": output.output,
        "received": str(output.amount),
        "amount": str(amount),
        "kept": str(output.amount - amount),
        "address": address,
        "state": S.QUEUED.value,
        "reason": reason,
        "created_at": now,
        "updated_at": now,
    }
    insert_once(conn, refunds, values)
    announce(conn, refunds_topic(output.chain))


def load_refund(conn: Connection, id: str, *, lock: bool = False) -> Refund:
    return refund_from(load_row(conn, refunds, id, what="refund", lock=lock))


def refunds_page(
    conn: Connection, *, state: RefundState | None = None, after: str | None = None, limit: int = 100
) -> list[Refund]:
    """Oldest first: who waited longest is served first."""
    query = select(refunds).order_by(refunds.c.created_at, refunds.c.id)
    if state is not None:
        query = query.where(refunds.c.state == state.value)
    if after is not None:
        last = load_refund(conn, after)
        query = query.where(after_last(refunds, last, is_newest_first=False))
    return [refund_from(row) for row in conn.execute(query.limit(max(1, min(limit, MAX_PAGE))))]


def unfinished_refunds(conn: Connection, chain: str, *, since: datetime) -> list[Refund]:
    """Return the refunds that a hot wallet works on, oldest first: those that wait, that it sent, and that
    were confirmed after `since`.
    """
    is_recent = and_(refunds.c.state == S.CONFIRMED.value, refunds.c.updated_at > since)
    is_open = refunds.c.state.in_([S.QUEUED.value, S.SENDING.value])
    is_followed = and_(
        or_(refunds.c.state == S.SENT.value, is_recent),
        refunds.c.prepared_txid.is_not(None),
        refunds.c.sent_txid == refunds.c.prepared_txid,
    )
    query = select(refunds).where(refunds.c.chain == chain, or_(is_open, is_followed))
    order = query.order_by(refunds.c.created_at, refunds.c.id).limit(MAX_PAGE)
    return [refund_from(row) for row in conn.execute(order)]


def signed_before(conn: Connection, refund: Refund) -> Refund | None:
    """Return an earlier refund of the same output to the same address, if one was signed.

    A reorganisation may bring a payment back under a new refund; the transaction signed before is used again.
    """
    query = select(refunds).where(
        refunds.c.chain == refund.chain,
        refunds.c.txid == refund.txid,
        refunds.c.output == refund.output,
        refunds.c.address == refund.address,
        refunds.c.amount == str(refund.amount),
        refunds.c.prepared.is_not(None),
    )
    row = conn.execute(query.order_by(refunds.c.created_at.desc()).limit(1)).one_or_none()
    return None if row is None else refund_from(row)


def begin_refund(
    conn: Connection, id: str, *, txid: str, raw: bytes, fee: int, actor: str, now: datetime
) -> Refund:
    """Record the signed transaction of a refund, before it is broadcast."""
    prepared = {"prepared_txid": txid, "prepared": raw.hex(), "fee": str(fee), "held": None}
    return _move(conn, id, "send", actor=actor, now=now, values=prepared)


def give_up_refund(conn: Connection, id: str, why: str, *, actor: str, now: datetime) -> Refund:
    """Put a refund back into the queue; its signed transaction is kept and tried again."""
    return _move(conn, id, "give_up", actor=actor, now=now, values={"held": why})


def hold_refund(conn: Connection, id: str, why: str | None, *, now: datetime) -> bool:
    """Say why it is not on its way (None: it is). False: that was said already."""
    differs = (
        refunds.c.held.is_not(None) if why is None else or_(refunds.c.held.is_(None), refunds.c.held != why)
    )
    query = update(refunds).where(refunds.c.id == id, differs)
    return conn.execute(query.values(held=why, updated_at=now)).rowcount > 0


def confirm_refund(conn: Connection, id: str, *, actor: str, now: datetime) -> Refund:
    return _move(conn, id, "confirmed", actor=actor, now=now, values={"held": None})


def unconfirm_refund(conn: Connection, id: str, *, actor: str, now: datetime) -> Refund:
    return _move(conn, id, "reorged", actor=actor, now=now)


_NOT_TWICE = "Name that transaction; do not send another."


def mark_refund_sent(conn: Connection, id: str, txid: str, *, actor: str, now: datetime) -> Refund:
    """Record that a refund was sent in this transaction. Repeating it is no error; another transaction is."""
    known = load_refund(conn, id, lock=True)
    if known.state in SENT_BACK:
        if known.sent_txid != txid:
            raise Conflict(why=f"refund {id} was sent in {known.sent_txid}", hint=_NOT_TWICE)
        return known
    if known.state is S.SENDING and known.prepared_txid != txid:
        raise Conflict(why=f"refund {id} is being sent in {known.prepared_txid}", hint=_NOT_TWICE)
    return _move(conn, id, "sent", actor=actor, now=now, values={"sent_txid": txid, "held": None})


def withdraw_refund(conn: Connection, id: str, *, now: datetime) -> None:
    """Withdraw a refund, because the chain took back the output it returns."""
    _move(conn, id, "withdraw", actor="system:invoices", now=now, values={"held": None})


def _move(
    conn: Connection,
    id: str,
    signal: str,
    *,
    actor: str,
    now: datetime,
    values: Mapping[str, str | None] = NOTHING,
) -> Refund:
    refund = load_refund(conn, id, lock=True)
    state = next_refund_state(refund.state, signal)
    moved = {**values, "state": state.value, "updated_at": now}
    conn.execute(update(refunds).where(refunds.c.id == id).values(**moved))
    after = load_refund(conn, id)
    data = {
        "refund": id,
        "txid": after.sent_txid or after.prepared_txid,
        "amount": str(refund.amount),
        "chain": refund.chain,
    }
    record(
        conn,
        subject=refund.invoice,
        kind=f"refund.{state.value}",
        actor=actor,
        reason=signal,
        at=now,
        data=data,
    )
    # The invoice is looked at again.
    announce(conn, topic(refund.chain))
    return after
