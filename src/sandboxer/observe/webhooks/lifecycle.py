"""Decides the states of a delivery and when to try again: a table and plain functions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.values import brief_value_class


class DeliveryState(StrEnum):
    PENDING = "pending"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    DEAD = "dead"


class Signal(StrEnum):
    ACCEPTED = "accepted"
    FAILED = "failed"
    # Tried for a day, or the receiver said that it is gone.
    GIVEN_UP = "given_up"
    # Its endpoint was removed or switched off.
    WITHDRAWN = "withdrawn"
    REDELIVER = "redeliver"


S, E = DeliveryState, Signal
WAITING = frozenset({S.PENDING, S.RETRYING})
TRANSITIONS: Mapping[tuple[DeliveryState, Signal], DeliveryState] = {
    **{(s, E.ACCEPTED): S.DELIVERED for s in WAITING},
    **{(s, E.FAILED): S.RETRYING for s in WAITING},
    **{(s, E.GIVEN_UP): S.DEAD for s in WAITING},
    **{(s, E.WITHDRAWN): S.DEAD for s in WAITING},
    # Also of one that waits: now instead of later.
    **{(s, E.REDELIVER): S.PENDING for s in S},
}

# After each failure: eleven tries over about a day.
DELAYS = tuple(
    timedelta(seconds=s) for s in (5, 30, 120, 600, 1800, 3600, 7200, 3 * 3600, 5 * 3600, 5 * 3600)
)
# Each is up to a fifth shorter or longer.
JITTER = 0.2
# How long a failing endpoint rests between two of its messages: each of them need not find out anew.
LONGEST_REST = timedelta(minutes=5)


@brief_value_class
class Verdict:
    state: DeliveryState
    due_at: datetime | None


def next_state(state: DeliveryState, signal: Signal) -> DeliveryState:
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        why = f"a delivery that is {state.value} cannot be {signal.value}"
        hint = "It is being sent: see what becomes of it (GET /v1/webhooks/{webhook_id}/deliveries)."
        raise Conflict(why=why, hint=hint) from None


def after_failure(
    state: DeliveryState, *, tries: int, now: datetime, chance: float, is_final: bool = False
) -> Verdict:
    """Returns the state and the next try after a failure. `tries` counts this failure; `chance` in [0, 1)
    spreads receivers that failed together.
    """
    if is_final or tries > len(DELAYS):
        return Verdict(next_state(state, Signal.GIVEN_UP), None)
    delay = DELAYS[tries - 1] * (1 - JITTER + 2 * JITTER * chance)
    return Verdict(next_state(state, Signal.FAILED), now + delay)


def rest_after(failures: int, *, now: datetime) -> datetime:
    """Returns until when a lane rests after so many failures in a row."""
    delay = DELAYS[min(failures, len(DELAYS)) - 1]
    return now + min(delay, LONGEST_REST)
