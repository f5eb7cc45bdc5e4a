"""The lifecycle of a service as one table. Every change of state goes through `next_state`.

A service is one process in a sandbox of its own. The record's `is_wanted` says whether its owner wants it to
run; the state says whether it does.
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
    # Nothing runs, because its owner stopped it or because its sandbox is stopped.
    STOPPED = "stopped"
    # Its process ended too often in too short a time. It is started again only when its owner asks.
    CRASH_LOOPING = "crash_looping"
    # It ended and is not restarted, or could not be made.
    FAILED = "failed"
    REMOVED = "removed"


class Signal(StrEnum):
    # The service was requested. This is the only signal that has no state before it.
    REQUEST = "request"
    # A process was started for it.
    LAUNCHED = "launched"
    HEALTHY = "healthy"
    SICK = "sick"
    # Its process ended and: will be restarted (exited); ended too often (crash_loop); will not be restarted,
    # without a failure (ended) or with one (broke).
    EXITED = "exited"
    CRASH_LOOP = "crash_loop"
    ENDED = "ended"
    BROKE = "broke"
    # Its sandbox was frozen; its sandbox runs again.
    SLEEP = "sleep"
    WAKE = "wake"
    # Its owner stopped it, or its sandbox stopped.
    STOP = "stop"
    REMOVE = "remove"


S, E = State, Signal

# A process of the service exists.
ALIVE = frozenset({S.STARTING, S.RUNNING, S.UNHEALTHY})
# The reconciler still acts on a service in one of these states.
KEPT = frozenset({*ALIVE, S.RESTARTING, S.SLEEPING})
FINAL = frozenset({S.REMOVED})
_LEFT = frozenset(S) - FINAL

TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    # From `starting` too: a redeploy replaces the process of a service that runs.
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
    """Returns the state that follows. Raises IllegalTransition for a step that is not in the table."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None


def render_mermaid() -> str:
    """Renders the table as a diagram for the documentation, in a stable order, with one arrow for each pair
    of states.
    """
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
