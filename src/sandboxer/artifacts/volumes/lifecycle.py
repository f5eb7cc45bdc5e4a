"""The lifecycle of a volume as one table. Every change of state goes through `next_state`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # Recorded, and the backend is making it. After a crash it stays so until the next start checks it.
    MAKING = "making"
    READY = "ready"
    # Its account ran dry; it is kept for the retention time, and cannot be attached to anything new.
    UNPAID = "unpaid"
    # It is being removed; it is gone, and only the record stays.
    DROPPING = "dropping"
    DROPPED = "dropped"
    # It could not be made; it is missing on the host.
    FAILED = "failed"
    LOST = "lost"


class Signal(StrEnum):
    MADE = "made"
    FAIL = "fail"
    MISSED = "missed"
    DRY = "dry"
    PAID = "paid"
    # A caller asked for it or its account ended; nobody paid in time.
    DROP = "drop"
    RETENTION_OVER = "retention_over"
    REMOVED = "removed"


S, E = State, Signal

# There is a disk.
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
    """Returns the state that follows. Raises IllegalTransition for a step that is not in the table."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(
            signal=signal.value, state=state.value, hint="GET the volume to see its state."
        ) from None
