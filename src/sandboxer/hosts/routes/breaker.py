"""A breaker per backend: after some failures in a row it is left alone for a while, then one create tries it.

    closed ──tripped──> open ──rested──> half-open ──passed──> closed
                          ^                  └──tripped──> open, for twice as long

`TRANSITIONS` is the lifecycle and `_moved` its one door. Decisions take `now` and return another breaker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.values import value_class
from sandboxer.store.steps import Lifecycle


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerSignal(StrEnum):
    # It made a sandbox.
    PASSED = "passed"
    # It failed, and may be asked again.
    FAILED = "failed"
    # It failed once too often.
    TRIPPED = "tripped"
    # Its time is over: one create tries it.
    RESTED = "rested"
    # That one ended by something else, and told nothing of the backend.
    ABANDONED = "abandoned"


S, E = BreakerState, BreakerSignal

TRANSITIONS: Mapping[tuple[BreakerState, BreakerSignal], BreakerState] = {
    (S.CLOSED, E.PASSED): S.CLOSED,
    (S.CLOSED, E.FAILED): S.CLOSED,
    (S.CLOSED, E.TRIPPED): S.OPEN,
    (S.CLOSED, E.ABANDONED): S.CLOSED,
    (S.OPEN, E.RESTED): S.HALF_OPEN,
    # Asked as a last resort, or begun before it opened.
    (S.OPEN, E.PASSED): S.CLOSED,
    (S.OPEN, E.FAILED): S.OPEN,
    (S.OPEN, E.ABANDONED): S.OPEN,
    (S.HALF_OPEN, E.PASSED): S.CLOSED,
    (S.HALF_OPEN, E.TRIPPED): S.OPEN,
    (S.HALF_OPEN, E.ABANDONED): S.HALF_OPEN,
}
BREAKER = Lifecycle(TRANSITIONS)


@value_class
class BreakerPolicy:
    # So many failures in a row open it.
    trips_after: int = 3
    # How long it is left alone the first time; twice as long each time that its trial fails, up to `most`.
    rests: timedelta = timedelta(seconds=15)
    most: timedelta = timedelta(minutes=10)
    # A trial that has told nothing for so long is lost: another may try.
    trial_within: timedelta = timedelta(minutes=2)


POLICY = BreakerPolicy()


@value_class
class Breaker:
    state: BreakerState = S.CLOSED
    # In a row; what one stranger causes again counts once (`by`).
    failures: int = 0
    by: frozenset[str] = frozenset()
    # How often it opened since it last made a sandbox.
    trips: int = 0
    # Until when it is left alone.
    until: datetime | None = None
    # Since when one create tries it.
    trial_since: datetime | None = None
    # The last failure, in words.
    why: str = ""


CLOSED = Breaker()


def may_try(breaker: Breaker, *, now: datetime, policy: BreakerPolicy = POLICY) -> bool:
    """Say whether a create may ask this backend now."""
    if breaker.state is S.CLOSED:
        return True
    if breaker.state is S.OPEN:
        return breaker.until is None or now >= breaker.until
    return breaker.trial_since is None or now - breaker.trial_since >= policy.trial_within


def begun(breaker: Breaker, *, now: datetime, policy: BreakerPolicy = POLICY) -> Breaker:
    """Return the breaker after a create asked this backend: where it was open, that is its trial."""
    if breaker.state is S.CLOSED or not may_try(breaker, now=now, policy=policy):
        return breaker
    rested = _moved(breaker, E.RESTED) if breaker.state is S.OPEN else breaker
    return replace(rested, trial_since=now)


def passed(breaker: Breaker) -> Breaker:
    """Return the breaker after it made a sandbox: nothing is remembered of failures."""
    # Checked by the table; every closed one that remembers nothing is the same.
    assert _moved(breaker, E.PASSED).state is S.CLOSED
    return CLOSED


def failed(
    breaker: Breaker, *, why: str, now: datetime, stranger: str | None = None, policy: BreakerPolicy = POLICY
) -> Breaker:
    """Return the breaker after it failed to make one, for the account of `stranger` if it is a stranger's.

    What one stranger can cause again and again opens nothing: others would be sent elsewhere by it.
    """
    is_again = stranger is not None and stranger in breaker.by
    by = breaker.by if stranger is None else breaker.by | {stranger}
    noted = replace(breaker, why=why, by=by, failures=breaker.failures + (0 if is_again else 1))
    if breaker.state is S.HALF_OPEN or (breaker.state is S.CLOSED and noted.failures >= policy.trips_after):
        tripped = replace(_moved(noted, E.TRIPPED), trips=breaker.trips + 1, trial_since=None)
        return replace(tripped, until=now + _rest(tripped.trips, policy))
    return _moved(noted, E.FAILED)


def abandoned(breaker: Breaker) -> Breaker:
    """Return the breaker after a create ended without telling anything of the backend."""
    if breaker.state is S.CLOSED:
        return breaker
    return replace(_moved(breaker, E.ABANDONED), trial_since=None)


def in_words(breaker: Breaker, *, now: datetime) -> str:
    """Say why a backend is left alone now."""
    if breaker.state is S.HALF_OPEN:
        return "it failed several times in a row, and one create is trying it again"
    left = 0 if breaker.until is None else max(1, round((breaker.until - now).total_seconds()))
    return f"it failed several times in a row ({breaker.why}), so it is left alone for {left} s more"


def _rest(trips: int, policy: BreakerPolicy) -> timedelta:
    # Bounded before it is multiplied, since a trip may be the thousandth.
    times: int = 2 ** min(trips - 1, 20)
    return min(policy.rests * times, policy.most)


def _moved(breaker: Breaker, signal: BreakerSignal) -> Breaker:
    """Raise IllegalTransition for what the table does not know."""
    return replace(breaker, state=BREAKER.next_state(breaker.state, signal))
