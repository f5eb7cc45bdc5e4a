"""The life of a payment as a table with one door. The words are those of the Stacks relay's schemas, and one
of ours: `settlement_pending`, when it is not known whether the money moves.

    (requires_payment) ──verified──> queued ──submit──> broadcasting ──accepted──> mempool ──> confirmed
                                        ^                 │      └──no answer──> settlement_pending
                                        └────refused──────┘

    confirmed ──block gone──> doubted ──found──> confirmed
                                 └────missing for so many blocks──> settlement_pending: taken back

`failed` is said only when the chain says so: the nonce is spent by something else, expired, or the transfer
was aborted. A timeout is never a failure. Confirmations can go down again, and then a payment is in doubt
before it is taken back (`settlement.py`): its sats cannot be spent anew, and nothing is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.store.steps import Lifecycle


class State(StrEnum):
    # Verified and written down; nothing was broadcast.
    QUEUED = "queued"
    # Handed to whoever settles it; the answer is not in yet.
    BROADCASTING = "broadcasting"
    # It may have been broadcast or not: only the chain knows.
    SETTLEMENT_PENDING = "settlement_pending"
    # On its way, with a transaction id.
    MEMPOOL = "mempool"
    CONFIRMED = "confirmed"
    # It was confirmed, and the chain does not show it now. Its sats are frozen; what runs goes on.
    DOUBTED = "doubted"
    FAILED = "failed"
    # Another transaction took its nonce.
    REPLACED = "replaced"
    # The relay knows nothing of it (any more).
    NOT_FOUND = "not_found"


class Signal(StrEnum):
    SUBMIT = "submit"
    # Taken back before anything could have been broadcast.
    REFUSE = "refuse"
    ACCEPT = "accept"
    LOSE = "lose"
    CONFIRM = "confirm"
    DOUBT = "doubt"
    UNCONFIRM = "unconfirm"
    FAIL = "fail"
    REPLACE = "replace"
    FORGET = "forget"


S, E = State, Signal
TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (S.QUEUED, E.SUBMIT): S.BROADCASTING,
    (S.QUEUED, E.FAIL): S.FAILED,
    # Whoever settled it said no and did it all the same: the chain is right.
    (S.QUEUED, E.CONFIRM): S.CONFIRMED,
    (S.QUEUED, E.ACCEPT): S.MEMPOOL,
    (S.BROADCASTING, E.REFUSE): S.QUEUED,
    (S.BROADCASTING, E.ACCEPT): S.MEMPOOL,
    (S.BROADCASTING, E.CONFIRM): S.CONFIRMED,
    (S.BROADCASTING, E.LOSE): S.SETTLEMENT_PENDING,
    (S.BROADCASTING, E.FAIL): S.FAILED,
    (S.BROADCASTING, E.REPLACE): S.REPLACED,
    (S.BROADCASTING, E.FORGET): S.NOT_FOUND,
    (S.SETTLEMENT_PENDING, E.SUBMIT): S.BROADCASTING,
    (S.SETTLEMENT_PENDING, E.ACCEPT): S.MEMPOOL,
    (S.SETTLEMENT_PENDING, E.CONFIRM): S.CONFIRMED,
    (S.SETTLEMENT_PENDING, E.FAIL): S.FAILED,
    (S.SETTLEMENT_PENDING, E.REPLACE): S.REPLACED,
    (S.SETTLEMENT_PENDING, E.FORGET): S.NOT_FOUND,
    (S.MEMPOOL, E.CONFIRM): S.CONFIRMED,
    (S.MEMPOOL, E.LOSE): S.SETTLEMENT_PENDING,
    (S.MEMPOOL, E.FAIL): S.FAILED,
    (S.MEMPOOL, E.REPLACE): S.REPLACED,
    (S.MEMPOOL, E.FORGET): S.NOT_FOUND,
    (S.CONFIRMED, E.DOUBT): S.DOUBTED,
    (S.DOUBTED, E.CONFIRM): S.CONFIRMED,
    # A reorganisation took the block back, and no other has it.
    (S.DOUBTED, E.UNCONFIRM): S.SETTLEMENT_PENDING,
}
# The money may be moving: never ask for it again.
IN_FLIGHT = frozenset({S.BROADCASTING, S.SETTLEMENT_PENDING, S.MEMPOOL, S.DOUBTED})
# It was credited for good; only proof takes that back.
CREDITED = frozenset({S.CONFIRMED, S.DOUBTED})
FAILURES = frozenset({S.FAILED, S.REPLACED, S.NOT_FOUND})
OVER = FAILURES | {S.CONFIRMED}


next_state = Lifecycle(TRANSITIONS).next_state
