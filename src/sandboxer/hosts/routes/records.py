"""What a route is decided from, what is decided, and what of it is kept with a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from sandboxer.backends.contract import Capability, Fingerprint, Wall
from sandboxer.hosts.routes.breaker import CLOSED, Breaker
from sandboxer.hosts.routes.latency import Latency
from sandboxer.kernel.values import value_class
from sandboxer.money.pricing import PLAIN, Basis


class IsolationLevel(StrEnum):
    """From the weakest to the strongest; a backend that gives one gives those before it."""

    POLICY = "policy"
    CONTAINER = "container"
    # A kernel of its own between it and the host's.
    STRONG = "strong"
    MICROVM = "microvm"


LEVELS = tuple(IsolationLevel)


class Strategy(StrEnum):
    # In the order in which they are named.
    EXPLICIT = "explicit"
    # On machines of the operator's own, and only then at somebody who charges for each.
    PREFER_SELF_HOSTED = "prefer-self-hosted"
    LOWEST_COST = "lowest-cost"
    # As measured by sandboxes that were made.
    LOWEST_LATENCY = "lowest-latency"


class Verdict(StrEnum):
    # It is the first to be asked.
    CHOSEN = "chosen"
    # It is asked if those before it fail.
    FALLBACK = "fallback"
    REFUSED = "refused"


class Why(StrEnum):
    """Why a candidate was not taken."""

    # It cannot do what is needed: `explanation` finds out what.
    LACKS = "lacks"
    NOT_NAMED = "not_named"
    EXPERIMENTAL = "experimental"
    ELSEWHERE = "elsewhere"
    UNPRICED = "unpriced"
    DEAR = "dear"
    QUOTED = "quoted"
    FEW_GPUS = "few_gpus"
    BROKEN = "broken"


@value_class
class Constraints:
    """What whoever asks wants of the backend. None and nothing: it does not matter."""

    strategy: Strategy | None = None
    region: str | None = None
    gpus: int = 0
    # Its model, in small letters; None: any.
    gpu: str | None = None
    # For the whole sandbox, while it runs.
    max_msats_per_hour: int | None = None
    capabilities: frozenset[Capability] = frozenset()
    # Names of secrets of the account, by backend: keys of its own at a provider.
    keys: Mapping[str, str] = field(default_factory=dict)

    def as_list(self) -> list[object]:
        """Return the same in an order that does not depend on chance, to compare two requests by."""
        plain = [self.strategy, self.region, self.gpus, self.gpu, self.max_msats_per_hour]
        return [*plain, sorted(self.capabilities), sorted(self.keys.items())]


ANYTHING = Constraints()


@value_class
class Demand:
    """What one sandbox needs, after profile, request and platform were put together."""

    # In this order.
    named: tuple[str, ...]
    strategy: Strategy = Strategy.EXPLICIT
    # Any backend may serve, not only those that are named.
    is_open: bool = False
    isolation: IsolationLevel = IsolationLevel.CONTAINER
    # Why it needs more than its profile says: then a backend of this host that gives it may serve, named or
    # not.
    raised_by: str | None = None
    walls: frozenset[Wall] = frozenset()
    region: str | None = None
    gpus: int = 0
    gpu: str | None = None
    max_msats_per_hour: int | None = None
    # What its quote promises, in msats per second.
    quoted_rate: int | None = None
    # Its account pays for it: nothing is made whose price nobody knows.
    is_paid: bool = False
    capabilities: frozenset[Capability] = frozenset()
    keeps_files: bool = False
    keeps_memory: bool = False
    # Where the disk or the volumes are that it begins with; nowhere else can it stand.
    lies_in: str | None = None


@value_class
class Candidate:
    """A backend as it is now, and what this sandbox would cost there."""

    backend: str
    # Tokens of what it can do: see `policy.given`. Made once for each fingerprint.
    gives: frozenset[str]
    gpus: int = 0
    # Somebody else charges for each of its sandboxes.
    is_metered: bool = False
    # Why nobody should rely on it yet.
    experimental: str | None = None
    # In msats per second; None: it cannot be said, for this reason.
    rate: int | None = 0
    unpriced: str = ""
    latency: Latency | None = None
    breaker: Breaker = CLOSED
    # What that rate rests on.
    basis: Basis = PLAIN
    # Of the secret that is the account's key there.
    key_name: str | None = None
    # Of its fingerprint, where it is not healthy.
    ill: str = ""
    # Why it cannot serve this one, whatever it gives.
    unfit: str = ""


@value_class
class Considered:
    """One backend of a route, and why it was taken or not."""

    backend: str
    verdict: Verdict
    reason: str
    rate_msats_per_s: int | None = None
    # Measured; None: not yet, or too long ago.
    latency_ms: float | None = None


@value_class
class Attempt:
    """A backend that was asked to make it."""

    backend: str
    is_made: bool
    reason: str
    took_ms: float


@value_class
class Route:
    """How its backend was chosen; kept with a sandbox."""

    strategy: Strategy = Strategy.EXPLICIT
    considered: tuple[Considered, ...] = ()
    # Of how many more nothing is kept.
    more: int = 0
    attempts: tuple[Attempt, ...] = ()
    basis: Basis = PLAIN
    # The name of the secret that is its key at the provider. The key itself is kept nowhere.
    key_name: str | None = None


UNROUTED = Route()


def to_json(route: Route) -> dict[str, Any] | None:
    """Return what the record keeps; nothing for a sandbox of before there were routes."""
    if route == UNROUTED:
        return None
    basis = route.basis
    return {
        "strategy": route.strategy.value,
        "considered": [
            [one.backend, one.verdict.value, one.reason, one.rate_msats_per_s, one.latency_ms]
            for one in route.considered
        ],
        "more": route.more,
        "attempts": [[one.backend, one.is_made, one.reason, one.took_ms] for one in route.attempts],
        "basis": None
        if basis == PLAIN
        else [basis.gpus, basis.infrastructure, basis.is_metered, basis.is_own_key],
        "key": route.key_name,
    }


def from_json(kept: Mapping[str, Any] | None) -> Route:
    if kept is None:
        return UNROUTED
    basis = kept["basis"]
    return Route(
        strategy=Strategy(kept["strategy"]),
        considered=tuple(
            Considered(
                backend=name, verdict=Verdict(verdict), reason=why, rate_msats_per_s=rate, latency_ms=ms
            )
            for name, verdict, why, rate, ms in kept["considered"]
        ),
        more=kept["more"],
        attempts=tuple(
            Attempt(backend=name, is_made=made, reason=why, took_ms=ms)
            for name, made, why, ms in kept["attempts"]
        ),
        basis=PLAIN
        if basis is None
        else Basis(gpus=basis[0], infrastructure=basis[1], is_metered=basis[2], is_own_key=basis[3]),
        key_name=kept["key"],
    )


def level_of(fingerprint: Fingerprint) -> IsolationLevel:
    """Return the isolation that a backend gives on this host, by its fingerprint."""
    return IsolationLevel(fingerprint.facts.get("isolation_level", IsolationLevel.CONTAINER.value))
