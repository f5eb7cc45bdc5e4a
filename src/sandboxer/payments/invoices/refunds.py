"""The queue of what must go back: to be signed by the operator, or sent by a hot wallet within its caps.

A refund spends the very output it returns. So a reorg that takes the payment takes its refund too, and a
refund that was sent twice by mistake is one transaction on the chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, and_, or_, select, update

from sandboxer.kernel.errors import Conflict, IllegalTransition, NotFound
from sandboxer.observe.events import record
from sandboxer.payments.invoices.book import MAX_PAGE, refund_from, topic
from sandboxer.payments.invoices.records import Refund, RefundState
from sandboxer.payments.invoices.tables import refunds
from sandboxer.store.workers import announce

S = RefundState
TRANSITIONS: Mapping[tuple[RefundState, str], RefundState] = {
    (S.QUEUED, "send"): S.SENDING,
    # Nothing was broadcast for certain: it may be tried again.
    (S.SENDING, "give_up"): S.QUEUED,
    (S.QUEUED, "sent"): S.SENT,
    (S.SENDING, "sent"): S.SENT,
    (S.QUEUED, "withdraw"): S.WITHDRAWN,
    (S.SENDING, "withdraw"): S.WITHDRAWN,
}


def next_refund_state(state: RefundState, signal: str) -> RefundState:
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal, state=state.value) from None


def load_refund(conn: Connection, id: str, *, lock: bool = False) -> Refund:
    query = select(refunds).where(refunds.c.id == id)
    row = conn.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound(what="refund", id=id)
    return refund_from(row)


def refunds_page(
    conn: Connection, *, state: RefundState | None = None, after: str | None = None, limit: int = 100
) -> list[Refund]:
    """Oldest first: who waited longest is served first."""
    query = select(refunds).order_by(refunds.c.created_at, refunds.c.id)
    if state is not None:
        query = query.where(refunds.c.state == state.value)
    if after is not None:
        last = load_refund(conn, after)
        later = or_(
            refunds.c.created_at > last.created_at,
            and_(refunds.c.created_at == last.created_at, refunds.c.id > last.id),
        )
        query = query.where(later)
    return [refund_from(row) for row in conn.execute(query.limit(max(1, min(limit, MAX_PAGE))))]


def begin_refund(conn: Connection, id: str, *, actor: str, now: datetime) -> Refund:
    """Written down before anything is broadcast."""
    return _move(conn, id, "send", actor=actor, now=now)


def give_up_refund(conn: Connection, id: str, *, actor: str, now: datetime) -> Refund:
    return _move(conn, id, "give_up", actor=actor, now=now)


def mark_refund_sent(conn: Connection, id: str, txid: str, *, actor: str, now: datetime) -> Refund:
    """It is on its way in this transaction. Saying so twice is no error; another transaction is."""
    known = load_refund(conn, id, lock=True)
    if known.state is S.SENT:
        if known.sent_txid != txid:
            raise Conflict(why=f"refund {id} was sent in {known.sent_txid}")
        return known
    return _move(conn, id, "sent", actor=actor, now=now, sent_txid=txid)


def withdraw_refund(conn: Connection, id: str, *, now: datetime) -> None:
    """The chain took back what was to be returned."""
    _move(conn, id, "withdraw", actor="system:invoices", now=now)


def _move(
    conn: Connection, id: str, signal: str, *, actor: str, now: datetime, sent_txid: str | None = None
) -> Refund:
    refund = load_refund(conn, id, lock=True)
    state = next_refund_state(refund.state, signal)
    values = {"state": state.value, "updated_at": now}
    if sent_txid is not None:
        values["sent_txid"] = sent_txid
    conn.execute(update(refunds).where(refunds.c.id == id).values(**values))
    data = {"refund": id, "txid": sent_txid, "amount": str(refund.amount), "chain": refund.chain}
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
    return load_refund(conn, id)
