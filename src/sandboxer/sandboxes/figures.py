"""Keeps the platform's figures in step with the book: steps taken, and where the time of creates went."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.observe.metrics import Metrics
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.lifecycle import Signal
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room


def keep_figures(metrics: Metrics, room: Room) -> None:
    def hear(sandbox: Sandbox, steps: Sequence[Step]) -> None:
        for step in steps:
            metrics.transitions.labels(signal=step.signal.value).inc()
            if step.signal is Signal.PROBE_PASSED:
                for name, spent_ms in sandbox.timings_ms.items():
                    metrics.create_seconds.labels(step=name).observe(spent_ms / 1000)

    room.book.on_change(hear)
    metrics.warm_pool.set_function(room.warm.count)
