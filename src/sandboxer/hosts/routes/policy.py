"""The decision which backend makes a sandbox: pure, and quick enough to be asked for every create.

What a backend gives is a set of words, and so is what a sandbox needs: what is missing is the reason. Texts
are made only when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sandboxer.backends.contract import Capability, Fingerprint, Wall
from sandboxer.hosts.routes.breaker import CLOSED, POLICY, BreakerPolicy, may_try
from sandboxer.hosts.routes.latency import STALE_AFTER
from sandboxer.hosts.routes.records import (
    LEVELS,
    Candidate,
    Demand,
    IsolationLevel,
    Strategy,
    Why,
    level_of,
)
from sandboxer.kernel.values import value_class

OPEN = "open"
HEALTHY = "healthy"
# A kernel of its own stands for it: behind one nothing has a uid of the host.
_STOOD_FOR = Wall.UID_RANGE


def given(fingerprint: Fingerprint | None, capabilities: Iterable[Capability]) -> frozenset[str]:
    """Return the words for what a backend can do on its host now. None: this platform does not use it."""
    if fingerprint is None:
        return frozenset()
    level, facts = level_of(fingerprint), fingerprint.facts
    words = {OPEN, *(f"isolation:{one}" for one in LEVELS[: LEVELS.index(level) + 1])}
    words |= {f"wall:{wall}" for wall in fingerprint.walls} | {f"capability:{one}" for one in capabilities}
    if fingerprint.healthy:
        words.add(HEALTHY)
    if LEVELS.index(level) >= LEVELS.index(IsolationLevel.STRONG):
        words.add(f"wall:{_STOOD_FOR}")
    if region := facts.get("region"):
        words.add(f"region:{region.lower()}")
    if model := facts.get("gpu"):
        words.add(f"gpu:{model.lower()}")
    if Capability.SNAPSHOT in capabilities or facts.get("checkpoint") == "memory":
        words.add("keeps:files")
    if facts.get("checkpoint") == "memory":
        words.add("keeps:memory")
    return frozenset(words)


def needed(demand: Demand) -> frozenset[str]:
    """Return the words for what a sandbox needs."""
    words = {OPEN, HEALTHY, f"isolation:{demand.isolation}", *(f"wall:{wall}" for wall in demand.walls)}
    words |= {f"capability:{one}" for one in demand.capabilities}
    if demand.region is not None:
        words.add(f"region:{demand.region.lower()}")
    if demand.gpu is not None:
        words.add(f"gpu:{demand.gpu.lower()}")
    if demand.keeps_files:
        words.add("keeps:files")
    if demand.keeps_memory:
        words.add("keeps:memory")
    return frozenset(words)


@value_class
class Decision:
    demand: Demand
    now: datetime
    # Those that may make it, the first first.
    taken: Sequence[Candidate]
    # With a `Why`, or the reason itself where it was found by asking.
    refused: Sequence[tuple[Candidate, str]]
    # The breakers of all that could make it are open: they are asked nevertheless.
    is_last_resort: bool = False

    def without(self, candidate: Candidate, why: str) -> Decision:
        """Return the decision without one that was taken and cannot, for a reason found by asking it."""
        left = [one for one in self.taken if one is not candidate]
        return replace(self, taken=left, refused=((candidate, why), *self.refused))


def decide(
    candidates: Sequence[Candidate], demand: Demand, *, now: datetime, breakers: BreakerPolicy = POLICY
) -> Decision:
    """Decide who makes a sandbox, in order. The order of candidates does not matter."""
    named = {backend: place for place, backend in enumerate(demand.named)}
    needs, why_not = needed(demand), _refusal(demand, named)
    refused: list[tuple[Candidate, str]] = []
    fitting: list[Candidate] = []
    for one in candidates:
        # The first question answers for most, and is one comparison.
        if why := why_not(one) if needs <= one.gives else Why.LACKS:
            refused.append((one, why))
        else:
            fitting.append(one)
    troubled = [one for one in fitting if one.breaker is not CLOSED]
    resting = [one for one in troubled if not may_try(one.breaker, now=now, policy=breakers)]
    is_last_resort = bool(resting) and len(resting) == len(fitting)
    if resting and not is_last_resort:
        names = {one.backend for one in resting}
        fitting = [one for one in fitting if one.backend not in names]
        refused += [(one, Why.BROKEN) for one in resting]
    fitting.sort(key=_order(demand.strategy, named, now))
    return Decision(demand=demand, now=now, taken=fitting, refused=refused, is_last_resort=is_last_resort)


def _refusal(demand: Demand, named: dict[str, int]) -> Callable[[Candidate], str]:
    """Return what says why one that has all that is needed is not taken nevertheless; "": it is."""
    is_raised, is_open, lies_in = demand.raised_by is not None, demand.is_open, demand.lies_in
    gpus, quoted, most = demand.gpus, demand.quoted_rate, demand.max_msats_per_hour
    must_be_priced = demand.is_paid or most is not None

    def why_not(one: Candidate) -> str:
        if one.backend not in named and one.backend != lies_in:
            if not (is_open or (is_raised and not one.is_metered)):
                return Why.NOT_NAMED
            if one.experimental is not None:
                return Why.EXPERIMENTAL
        if lies_in is not None and one.backend != lies_in:
            return Why.ELSEWHERE
        if one.unfit:
            return one.unfit
        if gpus > one.gpus:
            return Why.FEW_GPUS
        if (rate := one.rate) is None:
            return Why.UNPRICED if must_be_priced else ""
        if quoted is not None and rate > quoted:
            return Why.QUOTED
        return Why.DEAR if most is not None and rate * 3600 > most else ""

    return why_not


def _order(strategy: Strategy, named: dict[str, int], now: datetime) -> Callable[[Candidate], Any]:
    """Return the key that ranks them. Ties go by the order in which they are named, then by name."""
    last = len(named)
    if strategy is Strategy.PREFER_SELF_HOSTED:
        return lambda one: (one.is_metered, named.get(one.backend, last), one.backend)
    if strategy is Strategy.LOWEST_COST:
        return lambda one: (_cost(one), named.get(one.backend, last), one.backend)
    if strategy is Strategy.LOWEST_LATENCY:
        oldest = now - STALE_AFTER
        return lambda one: (_ms_since(one, oldest), named.get(one.backend, last), one.backend)
    return lambda one: (named.get(one.backend, last), one.backend)


def _cost(one: Candidate) -> tuple[bool, int]:
    """Return what it costs; what nobody knows is dearest."""
    return one.rate is None, one.rate or 0


def measured_ms(one: Candidate, now: datetime) -> float:
    """Return how long it takes; less than nothing where nobody knows, so that it is asked and measured."""
    return _ms_since(one, now - STALE_AFTER)


def _ms_since(one: Candidate, oldest: datetime) -> float:
    known = one.latency
    return -1.0 if known is None or known.at < oldest else known.ms
