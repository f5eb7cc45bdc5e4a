"""One step of the record of anything that is kept: what is asked of it, and the record that follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import Connection


class Recorded(Protocol):
    """What snapshots, images and volumes have in common."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def version(self) -> int: ...
    @property
    def state(self) -> Any: ...
    @property
    def state_since(self) -> datetime: ...
    @property
    def reason(self) -> str: ...


R = TypeVar("R", bound=Recorded)
S = TypeVar("S")


# Without slots: Python 3.11 cannot make a frozen one by the name `Step[…]` otherwise.
@dataclass(frozen=True, kw_only=True)
class Step(Generic[R, S]):
    # None: the record changes within its state, and `kind` tells of it.
    signal: S | None
    actor: str
    reason: str
    changes: Mapping[str, object] = field(default_factory=dict)
    kind: str = ""
    data: Mapping[str, object] = field(default_factory=dict)
    # Raises what refuses the step for the record as it is.
    check: Callable[[R], None] | None = None
    # Asked in the same transaction, with the record's row held. Raises what refuses the step.
    check_stored: Callable[[Connection, R], None] | None = None
    # Written in the same transaction.
    also: Callable[[Connection], None] | None = None
    # When it became true, if the charge ends there.
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Lifecycle(Generic[S]):
    """A table of states with its one door."""

    next_state: Callable[[Any, S], Any]
    # In these there is nothing left to keep.
    ended: frozenset[Any]


def stepped(before: R, step: Step[R, S], lifecycle: Lifecycle[S], now: datetime) -> R:
    """The record after the step. Raises IllegalTransition, and what `step.check` raises."""
    if step.check is not None:
        step.check(before)
    state = before.state if step.signal is None else lifecycle.next_state(before.state, step.signal)
    values: dict[str, Any] = {
        "version": before.version + 1,
        "state": state,
        "reason": before.reason if step.signal is None else step.reason,
        "state_since": before.state_since if state is before.state else now,
        "ended_at": now if state in lifecycle.ended else None,
        **step.changes,
    }
    return replace(before, **values)
