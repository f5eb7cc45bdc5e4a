"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_order = itertools.count()


class ManualClock:
    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    async def sleep(self, delay: timedelta) -> None:
        if delay <= timedelta(0):
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + delay, next(_order), woken))
        await woken

    def advance(self, delay: timedelta) -> None:
        self._now += delay
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    def sleepers(self) -> int:
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def slept_for(self) -> list[datetime]:
        """The moments for which somebody sleeps."""
        return sorted(moment for moment, _, woken in self._sleepers if not woken.done())


async def eventually(condition: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Until the condition holds: other tasks and the store's threads need their turn."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError("it never came about")
        await asyncio.sleep(0.002)
