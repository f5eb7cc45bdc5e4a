"""The life of a service as one table. Every change of state goes through `next_state`; nothing else decides.

A service is one process in one sandbox of its own. Whether it *should* run is a word of its owner
(`is_wanted` in the record); the state says what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # Its sandbox is being made.
    CREATING = "creating"
    # Its process runs and was not seen healthy yet.
    STARTING = "starting"
    RUNNING = "running"
    # It runs, and does not answer as it should.
    UNHEALTHY = "unhealthy"
    # Its process ended; the next one starts when the pause is over.
    RESTARTING = "restarting"
    # Its sandbox is frozen: by its owner, or because nobody asked for anything.
    SLEEPING = "sleeping"
    # Nothing runs, on purpose; or its sandbox is stopped.
    STOPPED = "stopped"
    # It ended too often in too short a time; nobody tries again before its owner says so.
    CRASH_LOOPING = "crash_looping"
    # It ended and is not restarted, or could not be made.
    FAILED = "failed"
    REMOVED = "removed"


class Signal(StrEnum):
    # Someone asked for a service; the only signal without a state before it.
    REQUEST = "request"
    # A process was started for it.
    LAUNCHED = "launched"
    HEALTHY = "healthy"
    SICK = "sick"
    # Its process ended, and: it will be started again; too often; not again, without or with a fault.
    EXITED = "exited"
    CRASH_LOOP = "crash_loop"
    ENDED = "ended"
    BROKE = "broke"
    # Its sandbox was frozen; goes on.
    SLEEP = "sleep"
    WAKE = "wake"
    # Its owner stopped it, or its sandbox stopped.
    STOP = "stop"
    REMOVE = "remove"


S, E = State, Signal

# A process of it is there.
ALIVE = frozenset({S.STARTING, S.RUNNING, S.UNHEALTHY})
# Something may still happen to it by itself.
KEPT = frozenset({*ALIVE, S.RESTARTING, S.SLEEPING})
FINAL = frozenset({S.REMOVED})
_LEFT = frozenset(S) - FINAL

TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    # Also from itself: a redeploy replaces the process of a service that runs.
    **{(s, E.LAUNCHED): S.STARTING for s in _LEFT},
    **{(s, E.HEALTHY): S.RUNNING for s in ALIVE},
    **{(s, E.SICK): S.UNHEALTHY for s in ALIVE},
    **{(s, E.EXITED): S.RESTARTING for s in KEPT},
    **{(s, E.CRASH_LOOP): S.CRASH_LOOPING for s in KEPT},
    **{(s, E.ENDED): S.STOPPED for s in KEPT},
    **{(s, E.BROKE): S.FAILED for s in _LEFT},
    **{(s, E.SLEEP): S.SLEEPING for s in (*ALIVE, S.RESTARTING)},
    (S.SLEEPING, E.WAKE): S.RUNNING,
    **{(s, E.STOP): S.STOPPED for s in _LEFT if s is not S.CREATING},
    **{(s, E.REMOVE): S.REMOVED for s in _LEFT},
}


def next_state(state: State, signal: Signal) -> State:
    """The one door. Raises IllegalTransition for a step that is not in the table."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None


def render_mermaid() -> str:
    """The table as a diagram for the documents, in a stable order; two states share one arrow."""
    arrows: dict[tuple[State, State], list[str]] = {}
    order, signals = list(State), list(Signal)
    for (state, signal), target in sorted(
        TRANSITIONS.items(),
        key=lambda row: (order.index(row[0][0]), order.index(row[1]), signals.index(row[0][1])),
    ):
        arrows.setdefault((state, target), []).append(signal.value)
    lines = ["stateDiagram-v2", f"    [*] --> {S.CREATING}: {E.REQUEST}"]
    lines += [f"    {start} --> {end}: {', '.join(names)}" for (start, end), names in arrows.items()]
    lines.append(f"    {S.REMOVED} --> [*]")
    return "\n".join(lines) + "\n"
