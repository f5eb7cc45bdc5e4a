"""The life of a session as one table. What its sandbox does (freeze above all) is the sandbox's own state.

starting ──ready──> ready ──interpreter gone──> died ──restart──> starting
    └──────────────────┴──────── over ───────────┴──> ended
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # The interpreter, and maybe its sandbox, is being made.
    STARTING = "starting"
    READY = "ready"
    # Its interpreter is gone, and with it what it knew; the session can be started again.
    DIED = "died"
    ENDED = "ended"


class Signal(StrEnum):
    ANSWERED = "answered"
    GONE = "gone"
    RESTART = "restart"
    END = "end"


S, E = State, Signal
TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (S.STARTING, E.ANSWERED): S.READY,
    (S.STARTING, E.GONE): S.DIED,
    (S.READY, E.GONE): S.DIED,
    (S.READY, E.RESTART): S.STARTING,
    (S.DIED, E.RESTART): S.STARTING,
    (S.STARTING, E.END): S.ENDED,
    (S.READY, E.END): S.ENDED,
    (S.DIED, E.END): S.ENDED,
}


def next_state(state: State, signal: Signal) -> State:
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None
