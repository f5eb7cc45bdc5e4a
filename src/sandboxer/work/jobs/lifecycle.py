"""The lifecycle of a job as one table. Every change of state goes through `next_state`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    # The program ended by itself, whatever its exit code.
    FINISHED = "finished"
    # It did not compile, or could not be started: `reason` says which.
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    # Its sandbox went away while it ran.
    LOST = "lost"


class Signal(StrEnum):
    STARTED = "started"
    # It goes back to the queue: nothing of it ran yet, because the host was full or the server died while
    # making its sandbox.
    PUT_BACK = "put_back"
    ENDED = "ended"
    FAIL = "fail"
    CANCEL = "cancel"
    TIME_OVER = "time_over"
    LOSE = "lose"


TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (State.QUEUED, Signal.STARTED): State.RUNNING,
    (State.QUEUED, Signal.PUT_BACK): State.QUEUED,
    (State.QUEUED, Signal.FAIL): State.FAILED,
    (State.QUEUED, Signal.CANCEL): State.CANCELLED,
    (State.RUNNING, Signal.PUT_BACK): State.QUEUED,
    (State.RUNNING, Signal.ENDED): State.FINISHED,
    (State.RUNNING, Signal.FAIL): State.FAILED,
    (State.RUNNING, Signal.CANCEL): State.CANCELLED,
    (State.RUNNING, Signal.TIME_OVER): State.TIMED_OUT,
    (State.RUNNING, Signal.LOSE): State.LOST,
}
FINAL = frozenset({State.FINISHED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.LOST})


def next_state(state: State, signal: Signal) -> State:
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None
