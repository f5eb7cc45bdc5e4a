"""The loops of time and activity: one ends sandboxes whose time is over, one records whether they are at
work.

The timer ends those whose TTL, idle time or retention is over, and retries failed removals; it sleeps until
the earliest moment that any record names. The recorder writes `ready` ⇄ `active` once the truth has differed
from the record for a second (decision 0003).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

from sandboxer.observe.metrics import Metrics
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.access import idle_check_at, is_idle, runs_commands
from sandboxer.sandboxes.use_cases.lifetime import RETRY, end, end_due, ends_at
from sandboxer.store.reconciler import FAR, Reconciler

ACTOR = "system:timer"
# Removals at a time: enough to empty a host in minutes, few enough to leave it usable.
AT_ONCE = 8
# One removal that hangs must not stop the timer; it goes on by itself.
PATIENCE_S = 60
# Entries of the queue that nobody means any more, beside as many as there are sandboxes.
MOST_STALE = 1000


class Timer(Reconciler):
    def __init__(self, dependencies: SandboxDependencies) -> None:
        super().__init__("the timer", dependencies.repository.store, dependencies.clock, retry=RETRY)
        self._dependencies = dependencies
        # When each has to be looked at, and the same as a heap. A look may be needless by then, never late.
        # With a walk over all of them, the end of each would cost as much as there are.
        self._planned: dict[str, datetime] = {}
        self._queue: list[tuple[datetime, str]] = []
        dependencies.repository.on_change(self._follow)

    async def run(self) -> None:
        for sandbox in self._dependencies.repository.living():
            self._plan(sandbox)
        await super().run()

    async def _round(self) -> datetime:
        limit, now = asyncio.Semaphore(AT_ONCE), self.clock.now()
        looked_at = list(self._due(now))
        try:
            async with asyncio.TaskGroup() as group:
                for sandbox in looked_at:
                    if self._moment(sandbox, now) <= now:
                        group.create_task(self._end_one(sandbox, limit))
        finally:
            for sandbox_id in (one.id for one in looked_at):
                if (left := self._dependencies.repository.peek(sandbox_id)) is not None:
                    self._plan(left)
        return self._queue[0][0] if self._queue else FAR

    def _due(self, now: datetime) -> Iterator[Sandbox]:
        while self._queue and self._queue[0][0] <= now:
            moment, sandbox_id = heappop(self._queue)
            if self._planned.get(sandbox_id) == moment:
                del self._planned[sandbox_id]
                if (sandbox := self._dependencies.repository.peek(sandbox_id)) is not None:
                    yield sandbox

    def _plan(self, sandbox: Sandbox) -> None:
        moment = self._moment(sandbox, self.clock.now())
        if moment < self._planned.get(sandbox.id, FAR):
            self._planned[sandbox.id] = moment
            heappush(self._queue, (moment, sandbox.id))
        if len(self._queue) > 2 * len(self._planned) + MOST_STALE:
            self._queue = [(at, sandbox_id) for sandbox_id, at in self._planned.items()]
            heapify(self._queue)

    def _follow(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        if sandbox.state is State.DESTROYED:
            self._not_before.pop(sandbox.id, None)
            self._planned.pop(sandbox.id, None)
            return
        self._plan(sandbox)
        if self._queue and self._queue[0][1] == sandbox.id:
            self.wake()

    def _moment(self, sandbox: Sandbox, now: datetime) -> datetime:
        """When this sandbox must be looked at. What has expired is due at `now`, however late it is since."""
        idle = idle_check_at(sandbox, self._dependencies.activity.pulse(sandbox.id), now=now) or FAR
        ends = now if sandbox.state is State.EXPIRED else ends_at(sandbox) or FAR
        return self._look_at(sandbox.id, min(ends, idle))

    async def _end_one(self, sandbox: Sandbox, limit: asyncio.Semaphore) -> None:
        async def act() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await self._act(sandbox)

        async with limit:
            await self._attend(sandbox.id, act)

    async def _act(self, sandbox: Sandbox) -> None:
        dependencies, now = self._dependencies, self.clock.now()
        if end_due(sandbox, now=now) is not None:
            await end(dependencies, sandbox, actor=ACTOR)
            return
        pulse = dependencies.activity.pulse(sandbox.id)
        if (check := idle_check_at(sandbox, pulse, now=now)) is None or check > now:
            return
        idle = await is_idle(sandbox, pulse, dependencies.backend_of(sandbox), now=now)
        if idle is False:
            dependencies.activity.touch(sandbox.id)
        elif idle:
            await end(dependencies, sandbox, actor=ACTOR, idle=True)


log = logging.getLogger(__name__)
RECORDER = "system:activity"
LAG = timedelta(seconds=1)
# How often an active sandbox without an open line is asked whether a background process still runs.
BACKGROUND_LAG = timedelta(seconds=15)


async def record_activity(dependencies: SandboxDependencies) -> None:
    """Sleep while nothing changes; otherwise look once a second at the sandboxes whose activity changed."""
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
    """Return whether a background process still runs; the sandbox is made active then.

    It asks at once when the lines closed, and seldom afterwards.
    """
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
    await dependencies.repository.move(sandbox_id, Step(signal=signal, actor=RECORDER, reason=signal.value))


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
