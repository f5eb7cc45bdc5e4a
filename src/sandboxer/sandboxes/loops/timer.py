"""The one timer: ends sandboxes whose TTL, idle time or retention is over, and retries failed removals.

Sleeps until the earliest moment that any record names; a write that names an earlier one wakes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from sandboxer.sandboxes.access import idle_check_at, is_idle
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.destroy import RETRY
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.lifetime import end, end_due, ends_at
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.store.reconciler import FAR, Reconciler

ACTOR = "system:timer"
# Removals at a time: enough to empty a host in minutes, few enough to leave it usable.
AT_ONCE = 8
# One removal that hangs must not stop the timer; it goes on by itself.
PATIENCE_S = 60


class Timer(Reconciler):
    def __init__(self, dependencies: SandboxDependencies) -> None:
        super().__init__("the timer", dependencies.repository.store, dependencies.clock, retry=RETRY)
        self._dependencies = dependencies
        self._planned = FAR
        dependencies.repository.on_change(self._follow)

    async def _round(self) -> datetime:
        limit, now = asyncio.Semaphore(AT_ONCE), self.clock.now()
        async with asyncio.TaskGroup() as group:
            for sandbox in self._dependencies.repository.living():
                if self._moment(sandbox) <= now:
                    group.create_task(self._end_one(sandbox, limit))
        self._planned = min(
            (self._moment(sandbox) for sandbox in self._dependencies.repository.living()), default=FAR
        )
        return self._planned

    def _follow(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        if sandbox.state is State.DESTROYED:
            self._not_before.pop(sandbox.id, None)
        elif self._moment(sandbox) < self._planned:
            self.wake()

    def _moment(self, sandbox: Sandbox) -> datetime:
        """When this sandbox must be looked at."""
        now = self.clock.now()
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
        check = idle_check_at(sandbox, pulse, now=now)
        if check is None or check > now:
            return
        idle = await is_idle(sandbox, pulse, dependencies.backend_of(sandbox), now=now)
        if idle is False:
            dependencies.activity.touch(sandbox.id)
        elif idle:
            await end(dependencies, sandbox, actor=ACTOR, idle=True)
