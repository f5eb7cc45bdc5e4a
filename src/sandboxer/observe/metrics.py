"""Holds the metrics for Prometheus in a registry of its own: two platforms in one process do not share
theirs.

Labels are taken from fixed sets only (routes, states, steps): an id in a label would grow without end.

`Probes` tries each part that an answer needs, with a deadline, to learn whether the platform is healthy.
Anyone may ask, uncounted: so an answer is kept for a moment, and however many ask, each part is tried by one
at a time. A try that hangs (a disk that does not answer) is not begun again beside itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sandboxer.kernel.tasks import TaskOwner

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


log = logging.getLogger(__name__)
KEPT_S = 1.0
ANSWERS_WITHIN_S = 3.0

# Raises if the part is ill.
Try = Callable[[], Awaitable[None]]
# Parts that are ill, by name, and why; those that are well, with None.
Findings = Mapping[str, str | None]


class Probe:
    """Tries one part: holds its last result and the try that is under way."""

    def __init__(self, name: str, attempt: Try, owner: TaskOwner) -> None:
        self.name = name
        self._attempt = attempt
        self._owner = owner
        self._task: asyncio.Task[None] | None = None
        self._why: str | None = None
        self._reported: str | None = None

    async def finding(self) -> str | None:
        """Tries the part and returns what is wrong with it, or None."""
        if self._task is None or self._task.done():
            self._task = self._owner.start(self._run(), name=f"probe {self.name}")
        done, _ = await asyncio.wait({self._task}, timeout=ANSWERS_WITHIN_S)
        why = self._why if done else f"no answer within {ANSWERS_WITHIN_S:g} s"
        self._report(why)
        return why

    async def _run(self) -> None:
        try:
            await self._attempt()
        except Exception as error:
            # Whatever it is, it is the answer to the question.
            self._why = str(error) or type(error).__name__
        else:
            self._why = None

    def _report(self, why: str | None) -> None:
        """Logs a failure once when it begins and once when it ends."""
        if (why is None) == (self._reported is None):
            return
        self._reported = why
        if why is None:
            log.warning("health: %s is well again", self.name)
        else:
            log.error("health: %s fails: %s", self.name, why)


class Probes:
    def __init__(self, owner: TaskOwner) -> None:
        self._owner = owner
        self._probes: list[Probe] = []
        self._looked_at = 0.0
        self._found: Findings = {}
        self._one_at_a_time = asyncio.Lock()

    def add(self, name: str, attempt: Try) -> None:
        self._probes.append(Probe(name, attempt, self._owner))

    async def look(self) -> Findings:
        """Tries all parts. Returns within little more than `ANSWERS_WITHIN_S`, whatever hangs."""
        async with self._one_at_a_time:
            if not self._found or time.monotonic() - self._looked_at > KEPT_S:
                self._found = await self._look()
                self._looked_at = time.monotonic()
            return self._found

    async def _look(self) -> Findings:
        found: dict[str, str | None] = {}
        async with asyncio.TaskGroup() as group:
            asked = {probe.name: group.create_task(probe.finding()) for probe in self._probes}
        for name, task in asked.items():
            found[name] = task.result()
        return found
