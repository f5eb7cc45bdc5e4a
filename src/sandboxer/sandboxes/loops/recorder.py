"""Writes `ready` ⇄ `active` once the truth has differed from the record for a second (decision 0003), and
counts what the repository tells.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from sandboxer.observe.metrics import Metrics
from sandboxer.sandboxes.access import runs_commands
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step

log = logging.getLogger(__name__)
ACTOR = "system:activity"
LAG = timedelta(seconds=1)
# How often an active sandbox without an open line is asked whether a background process still runs.
BACKGROUND_LAG = timedelta(seconds=15)


async def record_activity(dependencies: SandboxDependencies) -> None:
    """Sleeps while nothing stirs; otherwise looks once a second at the sandboxes that turned."""
    while True:
        await dependencies.activity.stirred.wait()
        await dependencies.clock.sleep(LAG)
        now = dependencies.clock.now()
        for sandbox_id in tuple(dependencies.activity.unsettled):
            try:
                await _settle(dependencies, sandbox_id, now)
            except Exception as error:
                # An outermost loop: one sandbox's trouble must not stop the record of all.
                log.warning("activity of %s not recorded: %r", sandbox_id, error)
                dependencies.activity.unsettled.discard(sandbox_id)
        if not dependencies.activity.unsettled:
            dependencies.activity.stirred.clear()


async def _settle(dependencies: SandboxDependencies, sandbox_id: str, now: datetime) -> None:
    sandbox = dependencies.repository.peek(sandbox_id)
    if sandbox is None or sandbox.state not in (State.READY, State.ACTIVE):
        dependencies.activity.unsettled.discard(sandbox_id)
        return
    pulse = dependencies.activity.pulse(sandbox_id)
    if now - pulse.since < LAG:
        return
    if not pulse.open_lines and await _background_runs(dependencies, sandbox, now):
        return
    dependencies.activity.unsettled.discard(sandbox_id)
    if pulse.open_lines and sandbox.state is State.READY:
        await _move(dependencies, sandbox_id, Signal.WORK_BEGAN)
    elif not pulse.open_lines and sandbox.state is State.ACTIVE:
        await _move(dependencies, sandbox_id, Signal.WORK_ENDED)


async def _background_runs(dependencies: SandboxDependencies, sandbox: Sandbox, now: datetime) -> bool:
    """Looks at once when the lines closed, then seldom; while it is true the sandbox is (made) active."""
    pulse = dependencies.activity.pulse(sandbox.id)
    if pulse.asked_at is not None and now - pulse.asked_at < BACKGROUND_LAG and pulse.asked_at >= pulse.since:
        return True
    if not await runs_commands(sandbox, dependencies.backend_of(sandbox)):
        return False
    pulse.asked_at = now
    if sandbox.state is State.READY:
        await _move(dependencies, sandbox.id, Signal.WORK_BEGAN)
    return True


async def _move(dependencies: SandboxDependencies, sandbox_id: str, signal: Signal) -> None:
    await dependencies.repository.move(sandbox_id, Step(signal=signal, actor=ACTOR, reason=signal.value))


def record_metrics(metrics: Metrics, dependencies: SandboxDependencies) -> None:
    """Keep the platform's metrics in step with the repository: steps taken, and where the time of creates
    went."""

    def hear(sandbox: Sandbox, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.signal is None:
                continue
            metrics.transitions.labels(signal=step.signal.value).inc()
            if step.signal is Signal.PROBE_PASSED:
                for name, spent_ms in sandbox.timings_ms.items():
                    metrics.create_seconds.labels(step=name).observe(spent_ms / 1000)

    dependencies.repository.on_change(hear)
    metrics.warm_pool.set_function(dependencies.warm.count)
