"""What a payment's fate means for its record and the ledger: one function, one transaction.

Called with what was just seen of it on its chain, by whoever asked: the request that waits for it, or the
reconciler hours later. Seeing the same again changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.money.amounts import Sats
from sandboxer.payments import crediting, heads, records, selling
from sandboxer.payments.lifecycle import CREDITED, FAILURES, Signal, State
from sandboxer.payments.records import Block, Payment, Purpose
from sandboxer.payments.reversal import Memory, Verdict, is_proof, judge
from sandboxer.payments.x402.ways import Fate, Sighting

log = logging.getLogger(__name__)
SOURCE = "x402"
# Looking again: soon at first, then less and less often.
FIRST_LOOK = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(minutes=1)
SELDOM_AFTER = timedelta(days=1)
SELDOM = timedelta(hours=1)
# Nothing more is to be learned of it; it stays as it is, and presenting it again looks again.
GIVEN_UP_AFTER = timedelta(days=30)
# One that was never handed on costs its payer nothing: it is not followed for ever, unless presented again.
QUEUED_WATCHED = timedelta(days=1)
# In a payment's details: the head from which it was first missed, and how often it was in doubt.
MISSED_AT = "missed_at"
DOUBTS = "doubts"
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
    # For so many blocks it must be missing before it is taken back.
    missing: int = 12


def pause(looks: int, age: timedelta = timedelta()) -> timedelta:
    """What was not decided within a day is asked for once an hour."""
    longest = LONGEST_PAUSE if age < SELDOM_AFTER else SELDOM
    return min(FIRST_LOOK * 1.5 ** min(looks, 20), longest)


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
    head = heads.last_head(conn, payment.network)
    if sighting.head is not None:
        heads.note_head(conn, payment.network, sighting.head, now=now)
    if payment.state in FAILURES:
        return payment
    if sighting.fate is Fate.CONFIRMED and sighting.confirmations >= depth.final:
        return _confirmed(conn, payment, sighting, depth, now)
    if payment.state in CREDITED:
        payment = _weigh(conn, payment, sighting, head, depth, now)
        if payment.state in CREDITED:
            return payment
    match sighting.fate:
        case Fate.CONFIRMED | Fate.SEEN:
            return _under_way(conn, payment, sighting, pending_limit, now)
        case Fate.FAILED | Fate.REPLACED | Fate.FORGOTTEN if _is_over(sighting, head):
            return _over(conn, payment, sighting, now)
        case Fate.UNSEEN:
            return _unseen(conn, payment, now)
    if payment.state is State.BROADCASTING:
        # Nobody can tell, and the settler's answer is not coming either.
        return _unseen(conn, payment, now)
    return _look_later(conn, payment, now)


def _is_over(sighting: Sighting, head: int | None) -> bool:
    """An end that was read from a chain counts from a head no lower than the last one seen."""
    return sighting.head is None or is_proof(sighting, head)


def _weigh(
    conn: Connection, payment: Payment, sighting: Sighting, head: int | None, depth: Depth, now: datetime
) -> Payment:
    """What it means for a credited payment that it was not found as deep as it should be."""
    memory = Memory(head=head, missed_at=payment.details.get(MISSED_AT))
    match judge(sighting, memory, blocks=depth.missing):
        case Verdict.DOUBT:
            return _doubt(conn, payment, sighting, now)
        case Verdict.TAKE_BACK:
            return _unconfirm(conn, payment, now)
    return _look_later(conn, payment, now)


def _look_later(conn: Connection, payment: Payment, now: datetime) -> Payment:
    """Nothing was learned. What nobody could tell for a month is left as it is."""
    return records.note(conn, payment.id, now=now, look_at=_next_look(payment, now), looked=True)


def _next_look(payment: Payment, now: datetime) -> datetime | None:
    age = now - payment.created_at
    return None if age >= GIVEN_UP_AFTER else now + pause(payment.looks, age)


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
    # Where nobody looked at the chain, nothing more can be learned of it.
    is_watched = sighting.head is not None and sighting.confirmations < depth.final + depth.watched
    look_at = now + pause(payment.looks) if is_watched else None
    block = Block(hash=sighting.block, height=sighting.height)
    if payment.state is State.CONFIRMED:
        return records.note(conn, payment.id, now=now, look_at=look_at, looked=True, block=block)
    after = records.move(
        conn,
        payment,
        Signal.CONFIRM,
        reason="confirmed",
        now=now,
        txid=sighting.txid,
        block=block,
        look_at=look_at,
        details={MISSED_AT: None},
    )
    if payment.state is State.DOUBTED:
        return _thaw(conn, payment, after, now)
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
    look_at = _next_look(payment, now)
    if payment.state is State.MEMPOOL:
        return records.note(conn, payment.id, now=now, look_at=look_at, looked=True)
    after = records.move(
        conn, payment, Signal.ACCEPT, reason="seen", now=now, txid=sighting.txid, look_at=look_at
    )
    return grant(conn, after, pending_limit=pending_limit, now=now)


def _unseen(conn: Connection, payment: Payment, now: datetime) -> Payment:
    look_at = _next_look(payment, now)
    if payment.state in (State.MEMPOOL, State.BROADCASTING):
        return records.move(
            conn, payment, Signal.LOSE, reason="not seen on its chain", now=now, look_at=look_at
        )
    is_left = payment.state is State.QUEUED and now >= payment.created_at + QUEUED_WATCHED
    return records.note(conn, payment.id, now=now, look_at=None if is_left else look_at, looked=True)


def _over(conn: Connection, payment: Payment, sighting: Sighting, now: datetime) -> Payment:
    signal = _ENDS[sighting.fate]
    if payment.state is State.QUEUED:
        signal = Signal.FAIL
    after = records.move(conn, payment, signal, reason=sighting.reason or "failed", now=now)
    crediting.pending_fail(conn, after.account, payment_id=ledger_id(after), reason=after.reason, now=now)
    if payment.purpose is Purpose.KEY and payment.details.get(selling.SOLD):
        selling.revoke(conn, after, now=now)
    return after


def _doubt(conn: Connection, payment: Payment, sighting: Sighting, now: datetime) -> Payment:
    """Its block is not the chain's any more: freeze its sats, and stop nothing."""
    log.warning("payment %s on %s is in doubt: its block is gone", payment.id, payment.network)
    count = int(payment.details.get(DOUBTS, 0)) + 1
    if payment.purpose is not Purpose.KEY:
        id = _doubt_id(payment, count)
        crediting.freeze(conn, payment.account, payment.sats, id=id, source=SOURCE, now=now)
    return records.move(
        conn,
        payment,
        Signal.DOUBT,
        reason="its block is gone",
        now=now,
        look_at=now + FIRST_LOOK,
        details={DOUBTS: count, MISSED_AT: sighting.head},
    )


def _thaw(conn: Connection, payment: Payment, after: Payment, now: datetime) -> Payment:
    if payment.purpose is not Purpose.KEY:
        id = f"{_doubt_id(payment, int(payment.details[DOUBTS]))}:thawed"
        crediting.thaw(conn, payment.account, payment.sats, id=id, source=SOURCE, now=now)
    return after


def _doubt_id(payment: Payment, count: int) -> str:
    return f"payment:{ledger_id(payment)}:doubted:{count}"


def _unconfirm(conn: Connection, payment: Payment, now: datetime) -> Payment:
    """A reorganisation took it back, as is proven: so do we, and it is tried again."""
    id = f"payment:{ledger_id(payment)}:reorged"
    if payment.purpose is Purpose.KEY:
        selling.take_back(conn, payment, id=id, source=SOURCE, now=now)
    else:
        crediting.reverse_frozen(conn, payment.account, payment.sats, id=id, reason="reorganised", now=now)
    attempt = int(payment.details.get("attempt", 0)) + 1
    return records.move(
        conn,
        payment,
        Signal.UNCONFIRM,
        reason="reorganised",
        now=now,
        look_at=now + FIRST_LOOK,
        details={"attempt": attempt, MISSED_AT: None},
    )
