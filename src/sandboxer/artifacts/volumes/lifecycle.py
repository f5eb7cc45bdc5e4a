"""The life of a volume as one table. Every change of state goes through `next_state`, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # Recorded, and the backend is at it; a crash leaves it so, and the next start looks.
    MAKING = "making"
    READY = "ready"
    # Its account ran dry; kept for the retention time all the same, and attached to nothing new.
    UNPAID = "unpaid"
    # Being removed; gone, the record stays.
    DROPPING = "dropping"
    DROPPED = "dropped"
    # It could not be made; or it is not on the host any more.
    FAILED = "failed"
    LOST = "lost"


class Signal(StrEnum):
    MADE = "made"
    FAIL = "fail"
    MISSED = "missed"
    DRY = "dry"
    PAID = "paid"
    # Someone asked, or its account ended; nobody paid in time.
    DROP = "drop"
    RETENTION_OVER = "retention_over"
    REMOVED = "removed"


S, E = State, Signal

# There is something on it.
USABLE = frozenset({S.READY, S.UNPAID})
# Nothing is left of it, and its name is free.
OVER = frozenset({S.DROPPED, S.FAILED})

TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (S.MAKING, E.MADE): S.READY,
    (S.MAKING, E.FAIL): S.FAILED,
    **{(s, E.MISSED): S.LOST for s in USABLE},
    (S.READY, E.DRY): S.UNPAID,
    (S.UNPAID, E.PAID): S.READY,
    **{(s, E.DROP): S.DROPPING for s in (*USABLE, S.LOST)},
    (S.UNPAID, E.RETENTION_OVER): S.DROPPING,
    (S.DROPPING, E.REMOVED): S.DROPPED,
}


def next_state(state: State, signal: Signal) -> State:
    """The one door. Raises IllegalTransition for a step that is not in the table."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(
            signal=signal.value, state=state.value, hint="GET the volume to see its state."
        ) from None
