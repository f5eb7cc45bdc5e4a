"""What this server has seen of each backend: whether it fails, and how long it takes. It is kept in memory:
after a restart every backend is believed again, and what it takes is known from sandboxes that live.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandboxer.hosts.routes import breaker as breakers
from sandboxer.hosts.routes.breaker import CLOSED, POLICY, Breaker, BreakerPolicy
from sandboxer.hosts.routes.latency import Latency, measured
from sandboxer.kernel.clock import Clock


class Observations:
    def __init__(self, clock: Clock, policy: BreakerPolicy = POLICY) -> None:
        self._clock = clock
        self.policy = policy
        self._breakers: dict[str, Breaker] = {}
        self._latencies: dict[str, Latency] = {}

    def breaker(self, backend: str) -> Breaker:
        return self._breakers.get(backend, CLOSED)

    def latency(self, backend: str) -> Latency | None:
        return self._latencies.get(backend)

    def remember(self, made: Iterable[tuple[str, float]]) -> None:
        """Take over how long backends took before this server started, the oldest first."""
        for backend, took_ms in made:
            self._measure(backend, took_ms)

    def begin(self, backend: str) -> None:
        """A create asks it now."""
        self._set(backend, breakers.begun(self.breaker(backend), now=self._clock.now(), policy=self.policy))

    def made(self, backend: str, took_ms: float) -> None:
        self._set(backend, breakers.passed(self.breaker(backend)))
        self._measure(backend, took_ms)

    def failed(self, backend: str, why: str, *, stranger: str | None) -> None:
        now, known = self._clock.now(), self.breaker(backend)
        self._set(backend, breakers.failed(known, why=why, now=now, stranger=stranger, policy=self.policy))

    def abandoned(self, backend: str) -> None:
        """A create ended for another reason than this backend."""
        self._set(backend, breakers.abandoned(self.breaker(backend)))

    def _measure(self, backend: str, took_ms: float) -> None:
        self._latencies[backend] = measured(self.latency(backend), took_ms, now=self._clock.now())

    def _set(self, backend: str, breaker: Breaker) -> None:
        self._breakers[backend] = breaker
