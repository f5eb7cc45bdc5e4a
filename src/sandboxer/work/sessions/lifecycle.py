"""The life of a session as one table. What its sandbox does (freeze above all) is the sandbox's own state.

starting ──ready──> ready ──interpreter gone──> died ──restart──> starting
    └──────────────────┴──────── over ───────────┴──> ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # The interpreter, and perhaps its sandbox, is being started.
    STARTING = "starting"
    READY = "ready"
    # Its interpreter is gone with all its state; the session can be restarted.
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


TTL_DEFAULT = timedelta(hours=1)
TTL_MAX = timedelta(hours=24)
IDLE_DEFAULT = timedelta(minutes=15)
# How much every cell extends the session.
ACTIVITY_ADDS = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a session began, when it ends at the latest, and how long it may be idle."""

    began: datetime
    expires_at: datetime
    idle: timedelta
    last_active: datetime


def begin(ttl: timedelta, idle: timedelta, *, now: datetime) -> Span:
    return Span(began=now, expires_at=now + ttl, idle=idle, last_active=now)


def bumped(span: Span, *, now: datetime) -> Span:
    """Returns the span after an activity: the end moves, but never past the longest life."""
    longest = span.began + TTL_MAX
    moved = max(span.expires_at, min(span.expires_at + ACTIVITY_ADDS, longest))
    return Span(began=span.began, expires_at=moved, idle=span.idle, last_active=max(now, span.last_active))


def end_due(span: Span, *, is_busy: bool, is_frozen: bool, now: datetime) -> str | None:
    """Returns why the session is over, or None if it is not. While frozen its end still comes nearer, but it
    does not count as idle; a running cell does not count as idle either.
    """
    if now >= span.expires_at:
        return "ttl"
    if not is_busy and not is_frozen and now >= span.last_active + span.idle:
        return "idle"
    return None


def look_at(span: Span) -> datetime:
    """Returns when to look next."""
    return min(span.expires_at, span.last_active + span.idle)
