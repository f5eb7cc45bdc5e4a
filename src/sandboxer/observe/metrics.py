"""Holds the metrics for Prometheus in a registry of its own: two platforms in one process do not share
theirs.

Labels are taken from fixed sets only (routes, states, steps): an id in a label would grow without end.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

# From half a millisecond (an exec) to a minute (a build of an image).
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60)


class Metrics:
    """Holds every metric; `docs/reference` lists them from here."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "sandboxer_requests", "Answered requests.", ("method", "route", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "sandboxer_request_seconds",
            "Time to the end of the answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.refused_signatures = Counter(
            "sandboxer_refused_signatures",
            "Requests without a valid signature.",
            ("reason",),
            registry=registry,
        )
        self.create_seconds = Histogram(
            "sandboxer_create_seconds",
            "Establishment of a sandbox, per step; `total` is the whole.",
            ("step",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.exec_seconds = Histogram(
            "sandboxer_exec_seconds",
            "Commands, from start to end.",
            ("outcome",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.sandboxes = Gauge("sandboxer_sandboxes", "Sandboxes by state.", ("state",), registry=registry)
        self.transitions = Counter(
            "sandboxer_transitions", "Steps of the lifecycle.", ("signal",), registry=registry
        )
        self.warm_pool = Gauge("sandboxer_warm_pool", "Sandboxes standing ready.", registry=registry)
        self.nonces = Gauge("sandboxer_nonces", "Nonces remembered.", registry=registry)
        self.clock_ahead = Gauge(
            "sandboxer_clock_ahead_seconds",
            "By how much the wall clock of the host is ahead of the server's time.",
            registry=registry,
        )
        self.clock_findings = Counter(
            "sandboxer_clock_findings",
            "What the server found about the wall clock: jumped, agrees, adopted, slowed.",
            ("finding",),
            registry=registry,
        )
        self.failures = Counter(
            "sandboxer_failures", "Errors that are ours, by stable code.", ("code",), registry=registry
        )

    def render(self) -> bytes:
        """Returns the text that Prometheus reads; serve it as `content_type`."""
        return generate_latest(self.registry)


def counted_by(counter: Counter, label: str) -> dict[str, int]:
    """Sums a counter by the values of one label."""
    found: dict[str, int] = {}
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                value = sample.labels[label]
                found[value] = found.get(value, 0) + int(sample.value)
    return found
