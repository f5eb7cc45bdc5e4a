"""Decides one step of any record: what is asked of it, and the record that follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from sandboxer.kernel.errors import IllegalTransition
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.store.rows import Recorded

R = TypeVar("R", bound=Recorded)
S = TypeVar("S")
P = TypeVar("P")


@value_class
class Step(Generic[R, S]):
    # None: the record changes within its state, and `kind` tells of it.
    signal: S | None
    actor: str
    reason: str
    changes: Mapping[str, object] = field(default_factory=dict)
    # More changes, where they depend on the record as it is.
    decide: Callable[[R], Mapping[str, object]] | None = None
    kind: str = ""
    # Facts for the event alone.
    data: Mapping[str, object] = field(default_factory=dict)
    # Raises what refuses the step for the record as it is; asked again whenever someone wrote first.
    check: Callable[[R], None] | None = None
    # Asked in the same transaction, with the record's row held. Raises what refuses the step.
    check_stored: Callable[[Connection, R], None] | None = None
    # Written in the same transaction.
    also: Callable[[Connection], None] | None = None
    # When it became true, if that was noticed later: a charge ends there.
    at: datetime | None = None


T = TypeVar("T", bound=Step[Any, Any])


@brief_value_class
class Lifecycle(Generic[P, S]):
    """A table of states and signals, and the one function that reads it."""

    transitions: Mapping[tuple[P, S], P]
    # Its `ended_at` is the moment it came into one of these; empty: steps say so themselves.
    ended: frozenset[P] = frozenset()
    # Advice for who asked for a step that is not in the table.
    hint: str | None = None

    def next_state(self, state: P, signal: S) -> P:
        """Returns the state that follows. Raises IllegalTransition for a step that is not in the table."""
        try:
            return self.transitions[state, signal]
        except KeyError:
            advice = {} if self.hint is None else {"hint": self.hint}
            raise IllegalTransition(signal=str(signal), state=str(state), **advice) from None


@brief_value_class
class Entry(Generic[R, T]):
    """Describes a step that was made."""

    step: T
    before: R
    after: R


@value_class
class Change(Generic[R, T]):
    """Describes what one transaction does to a record."""

    # None: it is new.
    before: R | None
    after: R
    entries: Sequence[Entry[R, T]]
    now: datetime


def stepped(before: R, step: Step[R, Any], lifecycle: Lifecycle[Any, Any], now: datetime) -> R:
    """Returns the record after the step. Raises IllegalTransition, and what `step.check` raises."""
    if step.check is not None:
        step.check(before)
    values: dict[str, Any] = {"version": before.version + 1}
    if step.signal is not None:
        state = lifecycle.next_state(before.state, step.signal)
        values |= {"state": state, "reason": step.reason}
        if state is not before.state and "state_since" in before.__dataclass_fields__:
            values["state_since"] = now
        if lifecycle.ended:
            values["ended_at"] = now if state in lifecycle.ended else None
    values |= step.changes
    if step.decide is not None:
        values |= step.decide(before)
    return replace(before, **values)


def walk(before: R, steps: Sequence[T], lifecycle: Lifecycle[Any, Any], now: datetime) -> list[Entry[R, T]]:
    """Returns the record after all of these steps. Raises as `stepped`."""
    entries: list[Entry[R, T]] = []
    for step in steps:
        after = stepped(before, step, lifecycle, now)
        entries.append(Entry(step, before, after))
        before = after
    return entries
