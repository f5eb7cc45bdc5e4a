"""The lifecycle of an invoice is one table. Every change of state goes through `next_state`.

A state says what the chain shows now and what that means for the payer. Looks may be far apart (a node was
down, we were): from an open state every other look is possible. What was delivered is only ever taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.kernel.errors import IllegalTransition


class State(StrEnum):
    # Nothing was seen; or a payment that can no longer confirm.
    AWAITING = "awaiting"
    DOUBLE_SPENT = "double_spent"
    # Too little to be worth a transaction; too little; enough, in the mempool; enough, in blocks.
    DUST = "dust"
    PARTIAL = "partial"
    SEEN = "seen"
    CONFIRMING = "confirming"
    # Delivered; more than was asked for came.
    PAID = "paid"
    OVER = "over"
    # The chain took back what had been delivered for.
    REORGED = "reorged"
    # The time is over and nothing came, too little came, or it came too late. The last two wait to be deep.
    EXPIRED = "expired"
    UNDERPAID = "underpaid"
    LATE = "late"
    # Deep enough, but nobody knows what it is worth: it waits in its own unit.
    AWAITING_RATE = "awaiting_rate"
    # What was not enough, or late, became sats; or goes back, or has gone back.
    CREDITED = "credited"
    REFUND_DUE = "refund_due"
    REFUNDED = "refunded"


class Signal(StrEnum):
    """The result of one look at the chain."""

    NOTHING = "nothing"
    VANISHED = "vanished"
    SPECK = "speck"
    SHORT = "short"
    IN_POOL = "in_pool"
    IN_BLOCK = "in_block"
    ENOUGH = "enough"
    MORE = "more"
    TAKEN_BACK = "taken_back"
    TIME_OVER = "time_over"
    TOO_LITTLE = "too_little"
    TOO_LATE = "too_late"
    NO_RATE = "no_rate"
    TURNED_TO_SATS = "turned_to_sats"
    TO_SEND_BACK = "to_send_back"
    SENT_BACK = "sent_back"


S, E = State, Signal
OPEN = frozenset({S.AWAITING, S.DOUBLE_SPENT, S.DUST, S.PARTIAL, S.SEEN, S.CONFIRMING})
DELIVERED = frozenset({S.PAID, S.OVER})
# States that are final for the payer, as far as anybody can know.
SETTLED = frozenset({S.PAID, S.OVER, S.EXPIRED, S.CREDITED, S.REFUND_DUE, S.REFUNDED})
_MEANS: Mapping[Signal, State] = {
    E.NOTHING: S.AWAITING,
    E.VANISHED: S.DOUBLE_SPENT,
    E.SPECK: S.DUST,
    E.SHORT: S.PARTIAL,
    E.IN_POOL: S.SEEN,
    E.IN_BLOCK: S.CONFIRMING,
    E.ENOUGH: S.PAID,
    E.MORE: S.OVER,
    E.TAKEN_BACK: S.REORGED,
    E.TIME_OVER: S.EXPIRED,
    E.TOO_LITTLE: S.UNDERPAID,
    E.TOO_LATE: S.LATE,
    E.NO_RATE: S.AWAITING_RATE,
    E.TURNED_TO_SATS: S.CREDITED,
    E.TO_SEND_BACK: S.REFUND_DUE,
    E.SENT_BACK: S.REFUNDED,
}
_UNPAID = frozenset(
    {S.EXPIRED, S.UNDERPAID, S.LATE, S.AWAITING_RATE, S.CREDITED, S.REFUND_DUE, S.REFUNDED, S.DUST}
)
_BEFORE: Mapping[Signal, frozenset[State]] = {
    E.NOTHING: OPEN,
    E.VANISHED: OPEN,
    E.SPECK: OPEN | _UNPAID,
    E.SHORT: OPEN,
    # Also after the time: a payment that had vanished came back, or a dearer one took its place.
    E.IN_POOL: OPEN | _UNPAID,
    E.IN_BLOCK: OPEN | _UNPAID,
    E.ENOUGH: OPEN | _UNPAID | {S.REORGED, S.OVER},
    E.MORE: OPEN | _UNPAID | {S.REORGED, S.PAID},
    E.TAKEN_BACK: DELIVERED,
    E.TIME_OVER: OPEN | _UNPAID | {S.REORGED},
    E.TOO_LITTLE: OPEN | _UNPAID | {S.REORGED},
    E.TOO_LATE: OPEN | _UNPAID | {S.REORGED},
    E.NO_RATE: OPEN | _UNPAID | {S.REORGED},
    E.TURNED_TO_SATS: OPEN | _UNPAID | {S.REORGED},
    E.TO_SEND_BACK: OPEN | _UNPAID | {S.REORGED},
    E.SENT_BACK: OPEN | _UNPAID | {S.REORGED},
}
TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (state, signal): _MEANS[signal]
    for signal, before in _BEFORE.items()
    for state in State
    if state in before and state is not _MEANS[signal]
}


def next_state(state: State, signal: Signal) -> State:
    """Return the next state. A look without news changes nothing; a step not in the table is refused."""
    if _MEANS[signal] is state:
        return state
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(signal=signal.value, state=state.value) from None


def render_mermaid() -> str:
    """The table as a diagram for the documents: states that go the same ways are drawn as one."""
    groups = {
        "open": sorted(OPEN, key=list(State).index),
        "unpaid": sorted(_UNPAID - OPEN, key=list(State).index),
    }
    of = {state: name for name, states in groups.items() for state in states}
    lines = ["stateDiagram-v2", f"    [*] --> {S.AWAITING}: created"]
    for name, states in groups.items():
        lines += [f"    state {name} {{", *(f"        {state}" for state in states), "    }"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, signal), target in TRANSITIONS.items():
        words = arrows.setdefault((of.get(state, state.value), target.value), [])
        if signal.value not in words:
            words.append(signal.value)
    lines += [f"    {start} --> {end}: {', '.join(words)}" for (start, end), words in arrows.items()]
    return "\n".join(lines) + "\n"
