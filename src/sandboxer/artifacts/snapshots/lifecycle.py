"""The lifecycle of a snapshot as one table. Every change of state goes through `next_state`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # Recorded, and the backend is making it. After a crash it stays so until the next start checks it.
    TAKING = "taking"
    KEPT = "kept"
    # Its account ran dry; it is kept for the retention time all the same.
    UNPAID = "unpaid"
    # It is being removed; it is gone, and only the record stays.
    DROPPING = "dropping"
    DROPPED = "dropped"
    # It could not be taken; its disk is missing or was altered.
    FAILED = "failed"
    LOST = "lost"


class Signal(StrEnum):
    TAKEN = "taken"
    FAIL = "fail"
    # Its disk is missing or altered.
    MISSED = "missed"
    DRY = "dry"
    PAID = "paid"
    # A caller asked for it; its time is over; nobody paid in time.
    DROP = "drop"
    EXPIRE = "expire"
    RETENTION_OVER = "retention_over"
    REMOVED = "removed"


S, E = State, Signal

# There is a disk to restore or to copy.
USABLE = frozenset({S.KEPT, S.UNPAID})
# Nothing is left of it.
OVER = frozenset({S.DROPPED, S.FAILED})

TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (S.TAKING, E.TAKEN): S.KEPT,
    (S.TAKING, E.FAIL): S.FAILED,
    **{(s, E.MISSED): S.LOST for s in USABLE},
    (S.KEPT, E.DRY): S.UNPAID,
    (S.UNPAID, E.PAID): S.KEPT,
    **{(s, E.DROP): S.DROPPING for s in (*USABLE, S.LOST)},
    **{(s, E.EXPIRE): S.DROPPING for s in USABLE},
    (S.UNPAID, E.RETENTION_OVER): S.DROPPING,
    (S.DROPPING, E.REMOVED): S.DROPPED,
}


def next_state(state: State, signal: Signal) -> State:
    """Returns the state that follows. Raises IllegalTransition for a step that is not in the table."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(
            signal=signal.value,
            state=state.value,
            hint="GET the snapshot to see its state.",
        ) from None
