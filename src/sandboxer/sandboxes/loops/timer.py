"""The one timer: ends sandboxes whose TTL, idle time or retention is over, and retries failed removals.

Sleeps until the earliest moment that any record names; a write that names an earlier one wakes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.destroy import RETRY
from sandboxer.sandboxes.idleness import idle_check_at, is_idle
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.lifetime import end, end_due, ends_at
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room

log = logging.getLogger(__name__)
ACTOR = "system:timer"
_FAR = datetime.max.replace(tzinfo=UTC)
# Removals at a time: enough to empty a host in minutes, few enough to leave it usable.
AT_ONCE = 8
# One removal that hangs must not stop the timer; it goes on by itself.
PATIENCE_S = 60
# The server's time may step forward, to a wall clock that was set: nobody sleeps past what is over then.
LONGEST_SLEEP = timedelta(seconds=30)


class Timer:
    def __init__(self, room: Room) -> None:
        self._room = room
        self._planned = _FAR
        self._sooner = asyncio.Event()
        # Where acting failed: not again before this.
        self._not_before: dict[str, datetime] = {}
        room.book.on_change(self._hear)

    async def run(self) -> None:
        while True:
            self._sooner.clear()
            self._planned = min((self._moment(sandbox) for sandbox in self._room.book.living()), default=_FAR)
            await wait_until(self._planned, self._sooner, self._room.clock)
            await self._sweep()

    def _hear(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        if sandbox.state is State.DESTROYED:
            self._not_before.pop(sandbox.id, None)
        elif self._moment(sandbox) < self._planned:
            self._sooner.set()

    def _moment(self, sandbox: Sandbox) -> datetime:
        """When this sandbox must be looked at."""
        if sandbox.state is State.DESTROYED:
            return _FAR
        now = self._room.clock.now()
        idle = idle_check_at(sandbox, self._room.activity.pulse(sandbox.id), now=now) or _FAR
        ends = now if sandbox.state is State.EXPIRED else ends_at(sandbox) or _FAR
        moment = min(ends, idle)
        return max(moment, self._not_before.get(sandbox.id, moment))

    async def _sweep(self) -> None:
        limit = asyncio.Semaphore(AT_ONCE)
        now = self._room.clock.now()
        async with asyncio.TaskGroup() as group:
            for sandbox in self._room.book.living():
                if self._moment(sandbox) <= now:
                    group.create_task(self._attend(sandbox, limit))

    async def _attend(self, sandbox: Sandbox, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._act(sandbox)
                self._not_before.pop(sandbox.id, None)
            except Exception:
                # An outermost loop: one sandbox's trouble must not stop the clock of all.
                log.exception("the timer could not attend to %s", sandbox.id)
                self._not_before[sandbox.id] = self._room.clock.now() + RETRY

    async def _act(self, sandbox: Sandbox) -> None:
        room, now = self._room, self._room.clock.now()
        if end_due(sandbox, now=now) is not None:
            await end(room, sandbox, actor=ACTOR)
            return
        pulse = room.activity.pulse(sandbox.id)
        check = idle_check_at(sandbox, pulse, now=now)
        if check is None or check > now:
            return
        idle = await is_idle(sandbox, pulse, room.backend_of(sandbox), now=now)
        if idle is False:
            room.activity.touch(sandbox.id)
        elif idle:
            await end(room, sandbox, actor=ACTOR, idle=True)


async def wait_until(moment: datetime, sooner: asyncio.Event, clock: Clock) -> None:
    """Until the moment comes or the event is set, or for so long that it is worth looking at the clock."""
    if moment >= _FAR - timedelta(days=1):
        await sooner.wait()
        return
    async with asyncio.TaskGroup() as group:
        asleep = group.create_task(clock.sleep(min(moment - clock.now(), LONGEST_SLEEP)))
        awake = group.create_task(sooner.wait())
        await asyncio.wait((asleep, awake), return_when=asyncio.FIRST_COMPLETED)
        asleep.cancel()
        awake.cancel()
