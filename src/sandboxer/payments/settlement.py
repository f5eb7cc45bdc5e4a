"""What a payment's fate means for its record and the ledger: one function, one transaction.

Called with what was just seen of it on its chain, by whoever asked: the request that waits for it, or the
reconciler hours later. Seeing the same again changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.money.amounts import Sats
from sandboxer.payments import crediting, records, selling
from sandboxer.payments.lifecycle import FAILURES, Signal, State
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.x402.ways import Fate, Sighting

SOURCE = "x402"
# Looking again: soon at first, then less and less often.
FIRST_LOOK = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(minutes=1)
# One that was never handed on costs its payer nothing: it is not followed for ever, unless presented again.
QUEUED_WATCHED = timedelta(days=1)
_ENDS = {
    Fate.FAILED: Signal.FAIL,
    Fate.REPLACED: Signal.REPLACE,
    Fate.FORGOTTEN: Signal.FORGET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How deep in its chain a payment is final, and how much deeper it is watched."""

    final: int
    watched: int


def pause(looks: int) -> timedelta:
    return min(FIRST_LOOK * 1.5 ** min(looks, 20), LONGEST_PAUSE)


def see(
    conn: Connection,
    payment: Payment,
    sighting: Sighting,
    *,
    depth: Depth,
    pending_limit: Sats,
    now: datetime,
) -> Payment:
    """Bring the record and the ledger in line with what was seen. Returns the payment as it is now."""
    payment = records.load(conn, payment.id, lock=True)
    if payment.state in FAILURES:
        return payment
    match sighting.fate:
        case Fate.CONFIRMED if sighting.confirmations >= depth.final:
            return _confirmed(conn, payment, sighting, depth, now)
        case Fate.CONFIRMED | Fate.SEEN:
            return _under_way(conn, payment, sighting, pending_limit, now)
        case Fate.UNSEEN:
            return _unseen(conn, payment, now)
        case Fate.FAILED | Fate.REPLACED | Fate.FORGOTTEN:
            return _over(conn, payment, sighting, now)


def ledger_id(payment: Payment) -> str:
    """Names its transfers; another one after each time that it was taken back."""
    return f"{payment.id}.{payment.details.get('attempt', 0)}"


def grant(
    conn: Connection, payment: Payment, *, pending_limit: Sats, now: datetime, sandbox_id: str | None = None
) -> Payment:
    """Let it count before it is final, as far as its payer may have payments pending."""
    if payment.purpose is Purpose.KEY:
        return payment
    others = sum(
        crediting.granted_to(conn, ledger_id(other))
        for other in records.unsettled(conn, payment.payer)
        if other.id != payment.id
    )
    crediting.pending_begin(
        conn,
        payment.account,
        payment.sats,
        payment_id=ledger_id(payment),
        at_most=pending_limit - others,
        source=SOURCE,
        now=now,
    )
    if sandbox_id is None:
        return payment
    return records.note(conn, payment.id, now=now, details={"sandbox_id": sandbox_id})


def take_back(conn: Connection, payment: Payment, *, reason: str, now: datetime) -> Payment:
    """What it gave before it was final is taken back; it may be used again while it is queued."""
    crediting.pending_fail(conn, payment.account, payment_id=ledger_id(payment), reason=reason, now=now)
    attempt = int(payment.details.get("attempt", 0)) + 1
    return records.note(conn, payment.id, now=now, details={"attempt": attempt, "sandbox_id": None})


def _confirmed(
    conn: Connection, payment: Payment, sighting: Sighting, depth: Depth, now: datetime
) -> Payment:
    is_watched = sighting.confirmations < depth.final + depth.watched
    look_at = now + pause(payment.looks) if is_watched else None
    if payment.state is State.CONFIRMED:
        return records.note(conn, payment.id, now=now, look_at=look_at, looked=True)
    after = records.move(
        conn,
        payment,
        Signal.CONFIRM,
        reason="confirmed",
        now=now,
        txid=sighting.txid,
        block=sighting.block,
        look_at=look_at,
    )
    if payment.purpose is Purpose.KEY:
        selling.sell(conn, after, id=ledger_id(after), source=SOURCE, now=now)
        return records.note(conn, after.id, now=now, details={selling.SOLD: True})
    crediting.pending_confirm(
        conn, after.account, after.sats, payment_id=ledger_id(after), source=SOURCE, now=now
    )
    return after


def _under_way(
    conn: Connection, payment: Payment, sighting: Sighting, pending_limit: Sats, now: datetime
) -> Payment:
    look_at = now + pause(payment.looks)
    if payment.state is State.CONFIRMED:
        payment = _unconfirm(conn, payment, now)
    if payment.state is State.MEMPOOL:
        return records.note(conn, payment.id, now=now, look_at=look_at, looked=True)
    after = records.move(
        conn, payment, Signal.ACCEPT, reason="seen", now=now, txid=sighting.txid, look_at=look_at
    )
    return grant(conn, after, pending_limit=pending_limit, now=now)


def _unseen(conn: Connection, payment: Payment, now: datetime) -> Payment:
    look_at = now + pause(payment.looks)
    if payment.state is State.CONFIRMED:
        return _unconfirm(conn, payment, now)
    if payment.state in (State.MEMPOOL, State.BROADCASTING):
        return records.move(
            conn, payment, Signal.LOSE, reason="not seen on its chain", now=now, look_at=look_at
        )
    is_left = payment.state is State.QUEUED and now >= payment.created_at + QUEUED_WATCHED
    return records.note(conn, payment.id, now=now, look_at=None if is_left else look_at, looked=True)


def _over(conn: Connection, payment: Payment, sighting: Sighting, now: datetime) -> Payment:
    if payment.state is State.CONFIRMED:
        payment = _unconfirm(conn, payment, now)
    signal = _ENDS[sighting.fate]
    if payment.state is State.QUEUED:
        signal = Signal.FAIL
    after = records.move(conn, payment, signal, reason=sighting.reason or "failed", now=now)
    crediting.pending_fail(conn, after.account, payment_id=ledger_id(after), reason=after.reason, now=now)
    if payment.purpose is Purpose.KEY and payment.details.get(selling.SOLD):
        selling.revoke(conn, after, now=now)
    return after


def _unconfirm(conn: Connection, payment: Payment, now: datetime) -> Payment:
    """A reorganisation took it back after it was credited: so do we, and it is tried again."""
    id = f"payment:{ledger_id(payment)}:reorged"
    if payment.purpose is Purpose.KEY:
        selling.take_back(conn, payment, id=id, source=SOURCE, now=now)
    else:
        crediting.reverse_final(
            conn, payment.account, payment.sats, id=id, reason="reorganised", now=now, source=SOURCE
        )
    attempt = int(payment.details.get("attempt", 0)) + 1
    return records.move(
        conn,
        payment,
        Signal.UNCONFIRM,
        reason="reorganised",
        now=now,
        look_at=now + FIRST_LOOK,
        details={"attempt": attempt},
    )
