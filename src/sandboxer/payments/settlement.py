"""What a payment's fate means for its record and the ledger: one function, one transaction.

Called with what was just seen of it on its chain, by whoever asked: the request that waits for it, or the
reconciler hours later. Seeing the same again changes nothing.

When a payment that was confirmed is taken back: pure decisions over what nodes said.

An answer is proof only if it comes from a head no lower than the last one seen of that chain, and says that
the block of the payment is not the chain's any more. A null receipt, a node that is behind, a relay that has
forgotten: none of these proves anything. Even proof first freezes the sats, and takes them back only when the
payment is in no block for so many more blocks, or when its nonce was spent by something else. One that was
never confirmed is given up by the same rule: its time is over, and for so many blocks it is not there.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection, insert, select, update

from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Sats
from sandboxer.payments import credits, goods, records
from sandboxer.payments.lifecycle import CREDITED, FAILURES, Signal, State
from sandboxer.payments.records import Block, Payment, Purpose
from sandboxer.payments.tables import chain_heads
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
# A head that nobody showed again for so long was a lie, or another chain's.
HEAD_KEPT_FOR = timedelta(days=1)
ENDS = frozenset({Fate.FAILED, Fate.REPLACED, Fate.FORGOTTEN})
# Of two negative answers the one that claims less counts.
_CLAIMS = (Fate.SEEN, Fate.UNSEEN, Fate.FORGOTTEN, Fate.REPLACED, Fate.FAILED)


@value_class
class Depth:
    """How deep a payment must be to be final, and how much deeper it is watched."""

    final: int
    watched: int
    # For so many blocks it must be missing before it is taken back.
    missing: int = 12


class Verdict(StrEnum):
    # Nothing is proven, or not yet enough.
    KEEP = "keep"
    DOUBT = "doubt"
    TAKE_BACK = "take_back"


@value_class
class Memory:
    """What was known of a payment before this look."""

    # The highest head seen of this chain.
    head: int | None = None
    # The head from which the payment was first missed; None: it is not in doubt.
    missed_at: int | None = None


def pause(looks: int, age: timedelta = timedelta()) -> timedelta:
    """Return how long to wait before the next look; after a day it is an hour."""
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
    head = last_head(conn, payment.network)
    if sighting.head is not None:
        note_head(conn, payment.network, sighting.head, now=now)
    if payment.state in FAILURES:
        return payment
    memory = Memory(head=head, missed_at=payment.details.get(MISSED_AT))
    if sighting.fate is Fate.CONFIRMED and sighting.confirmations >= depth.final:
        return _confirmed(conn, payment, sighting, depth, now)
    if payment.state in CREDITED:
        payment = _weigh(conn, payment, sighting, memory, depth, now)
        if payment.state in CREDITED:
            return payment
    match sighting.fate:
        case Fate.CONFIRMED | Fate.SEEN:
            return _under_way(conn, payment, sighting, pending_limit, now)
        case Fate.FAILED | Fate.REPLACED | Fate.FORGOTTEN if is_over(sighting, memory, blocks=depth.missing):
            return _over(conn, payment, sighting, now)
        case Fate.FAILED if memory.missed_at is None and is_proof(sighting, head):
            payment = records.note(conn, payment.id, now=now, details={MISSED_AT: sighting.head})
        case Fate.UNSEEN:
            return _unseen(conn, payment, now)
    if payment.state is State.BROADCASTING:
        # Nobody can tell, and the settler's answer is not coming either.
        return _unseen(conn, payment, now)
    return _look_later(conn, payment, now)


def _weigh(
    conn: Connection, payment: Payment, sighting: Sighting, memory: Memory, depth: Depth, now: datetime
) -> Payment:
    """Judge a credited payment that was not found as deep as it should be."""
    match judge(sighting, memory, blocks=depth.missing):
        case Verdict.DOUBT:
            return _doubt(conn, payment, sighting, now)
        case Verdict.TAKE_BACK:
            return _unconfirm(conn, payment, now)
    return _look_later(conn, payment, now)


def _look_later(conn: Connection, payment: Payment, now: datetime) -> Payment:
    """Look again later, because nothing was learned. After a month the payment is left as it is."""
    return records.note(conn, payment.id, now=now, look_at=_next_look(payment, now), looked=True)


def _next_look(payment: Payment, now: datetime) -> datetime | None:
    age = now - payment.created_at
    return None if age >= GIVEN_UP_AFTER else now + pause(payment.looks, age)


def ledger_id(payment: Payment) -> str:
    """Return the id that names its transfers; it changes each time the payment was taken back."""
    return f"{payment.id}.{payment.details.get('attempt', 0)}"


def grant(
    conn: Connection, payment: Payment, *, pending_limit: Sats, now: datetime, sandbox_id: str | None = None
) -> Payment:
    """Credit a payment before it is final, as far as its payer may have payments pending."""
    if payment.purpose is Purpose.KEY:
        return payment
    others = sum(
        credits.granted_to(conn, ledger_id(other))
        for other in records.unsettled(conn, payment.payer)
        if other.id != payment.id
    )
    credits.pending_begin(
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
    """Take back what it gave before it was final; it may be used again while it is queued."""
    credits.pending_fail(conn, payment.account, payment_id=ledger_id(payment), reason=reason, now=now)
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
        goods.sell(conn, after, id=ledger_id(after), source=SOURCE, now=now)
        return records.note(conn, after.id, now=now, details={goods.SOLD: True})
    credits.pending_confirm(
        conn, after.account, after.sats, payment_id=ledger_id(after), source=SOURCE, now=now
    )
    return after


def _under_way(
    conn: Connection, payment: Payment, sighting: Sighting, pending_limit: Sats, now: datetime
) -> Payment:
    look_at = _next_look(payment, now)
    found: dict[str, None] = {MISSED_AT: None}
    if payment.state is State.MEMPOOL:
        return records.note(conn, payment.id, now=now, look_at=look_at, looked=True, details=found)
    after = records.move(
        conn,
        payment,
        Signal.ACCEPT,
        reason="seen",
        now=now,
        txid=sighting.txid,
        look_at=look_at,
        details=found,
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
    credits.pending_fail(conn, after.account, payment_id=ledger_id(after), reason=after.reason, now=now)
    if payment.purpose is Purpose.KEY and payment.details.get(goods.SOLD):
        goods.revoke(conn, after, now=now)
    return after


def _doubt(conn: Connection, payment: Payment, sighting: Sighting, now: datetime) -> Payment:
    """Freeze its sats, because its block is not the chain's any more. Nothing is stopped."""
    log.warning("payment %s on %s is in doubt: its block is gone", payment.id, payment.network)
    count = int(payment.details.get(DOUBTS, 0)) + 1
    if payment.purpose is not Purpose.KEY:
        id = _doubt_id(payment, count)
        credits.freeze(conn, payment.account, payment.sats, id=id, source=SOURCE, now=now)
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
        credits.thaw(conn, payment.account, payment.sats, id=id, source=SOURCE, now=now)
    return after


def _doubt_id(payment: Payment, count: int) -> str:
    return f"payment:{ledger_id(payment)}:doubted:{count}"


def _unconfirm(conn: Connection, payment: Payment, now: datetime) -> Payment:
    """Take back a payment that a reorganisation undid, as is proven; it is tried again."""
    id = f"payment:{ledger_id(payment)}:reorged"
    if payment.purpose is Purpose.KEY:
        goods.take_back(conn, payment, id=id, source=SOURCE, now=now)
    else:
        credits.reverse_frozen(conn, payment.account, payment.sats, id=id, reason="reorganised", now=now)
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


def judge(sighting: Sighting, memory: Memory, *, blocks: int) -> Verdict:
    """Judge a look at a credited payment. It must be missing for `blocks` blocks to be taken back."""
    if not is_proof(sighting, memory.head) or sighting.is_block_there:
        return Verdict.KEEP
    if memory.missed_at is None:
        return Verdict.DOUBT
    if sighting.is_spent_otherwise:
        return Verdict.TAKE_BACK
    head = sighting.head or 0
    return Verdict.TAKE_BACK if head >= memory.missed_at + blocks else Verdict.KEEP


def is_over(sighting: Sighting, memory: Memory, *, blocks: int) -> bool:
    """Whether a payment that is not credited never will be. A node that has lost its memory says too that it
    is not there and its time over: so it must be missing for as long as one that was confirmed."""
    if sighting.head is None:
        return True
    if not is_proof(sighting, memory.head):
        return False
    is_missed = memory.missed_at is not None and sighting.head >= memory.missed_at + blocks
    return sighting.is_spent_otherwise or is_missed


def is_proof(sighting: Sighting, head: int | None) -> bool:
    """Return whether it proves that the payment is not on its chain, from a head that is not too old."""
    if sighting.fate in (Fate.CONFIRMED, Fate.UNKNOWN) or sighting.head is None:
        return False
    return head is None or sighting.head >= head


def agreed(first: Sighting, second: Sighting) -> Sighting:
    """Combine the answers of two nodes. Either can confirm a payment; both must deny it."""
    if first.fate is Fate.CONFIRMED:
        return first
    if second.fate is Fate.CONFIRMED:
        return second
    if Fate.UNKNOWN in (first.fate, second.fate) or first.head is None or second.head is None:
        return Sighting(fate=Fate.UNKNOWN, reason="the nodes do not agree")
    least = min(first, second, key=lambda one: _CLAIMS.index(one.fate))
    return replace(
        least,
        head=min(first.head, second.head),
        is_block_there=first.is_block_there or second.is_block_there,
        is_spent_otherwise=first.is_spent_otherwise and second.is_spent_otherwise,
    )


def head_after(known: int | None, known_at: datetime | None, seen: int, *, now: datetime) -> int:
    """Return the head to remember of a chain: the highest, unless it was not seen again for a day."""
    if known is None or known_at is None or seen >= known or now - known_at >= HEAD_KEPT_FOR:
        return seen
    return known


def last_head(conn: Connection, network: str) -> int | None:
    height = conn.execute(select(chain_heads.c.height).where(chain_heads.c.network == network)).scalar()
    return None if height is None else int(height)


def note_head(conn: Connection, network: str, height: int, *, now: datetime) -> None:
    """Remember it if it is the highest. Within a write transaction."""
    row = conn.execute(
        select(chain_heads).where(chain_heads.c.network == network).with_for_update()
    ).one_or_none()
    if row is None:
        conn.execute(insert(chain_heads).values(network=network, height=height, seen_at=now))
        return
    if head_after(int(row.height), row.seen_at, height, now=now) == height:
        ours = chain_heads.c.network == network
        conn.execute(update(chain_heads).where(ours).values(height=height, seen_at=now))
