"""Runs what happens without a caller: does what is due, then sleeps until the next moment or until it is
woken. A round compares records with reality and never relies on having heard of a change, so a crash loses
nothing; one record's trouble stops nobody else's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from sandboxer.kernel.clock import Clock, sleep_unless_woken
from sandboxer.kernel.errors import SandboxerError, Unavailable
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
RETRY = timedelta(seconds=30)
DATABASE_RETRY = timedelta(seconds=1)
FAR = datetime.max.replace(tzinfo=UTC)
# The server's time may step forward, to a wall clock that was set: nobody sleeps past what is over then.
LONGEST_SLEEP = timedelta(seconds=30)


class Reconciler:
    """Does what is due for the records of one noun. `name` says in the log which loop it is."""

    def __init__(self, name: str, store: Store, clock: Clock, *, retry: timedelta = RETRY) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self._retry = retry
        self._awake = asyncio.Event()
        # Where acting failed: not again before this.
        self._not_before: dict[str, datetime] = {}

    def wake(self) -> None:
        self._awake.set()

    async def run(self) -> None:
        """Runs rounds for ever. Cancel it to stop."""
        leave: Callable[[], None] = self.store.on_commit(self._hear)
        try:
            while True:
                self._awake.clear()
                try:
                    moment = await self._round()
                except Exception:
                    # An outermost loop: the next round tries again.
                    log.exception("%s: a round failed", self.name)
                    moment = self.clock.now() + self._retry
                await wait_until(moment, self._awake, self.clock)
        finally:
            leave()

    async def _round(self) -> datetime:
        """Does what is due; returns when to look again although nothing happened."""
        raise NotImplementedError

    def _hear(self, topics: frozenset[str]) -> None:
        """Hears what a committed transaction announced, and wakes the loop if it did not know."""

    def _is_paused(self, id: str) -> bool:
        """Says whether acting on it failed a moment ago, so that it has to wait."""
        return id in self._not_before and self._not_before[id] > self.clock.now()

    def _look_at(self, id: str, moment: datetime) -> datetime:
        """Returns the end of its pause if it is paused, and otherwise that moment.

        A pause that ended since, while others were attended to, ends now: the next round tries it again.
        """
        if id not in self._not_before:
            return moment
        return self._not_before[id] if self._is_paused(id) else self._not_before.pop(id)

    async def _attend(self, id: str, act: Callable[[], Awaitable[None]]) -> None:
        """Runs `act`, unless it failed a moment ago. Raises nothing."""
        if self._is_paused(id):
            return
        try:
            await act()
            self._not_before.pop(id, None)
        except Exception as error:
            # One record's trouble must not stop the clock of all.
            is_known = isinstance(error, SandboxerError)
            log.warning("%s: could not attend to %s: %r", self.name, id, error, exc_info=not is_known)
            self._not_before[id] = self.clock.now() + self._retry


async def wait_until(moment: datetime, sooner: asyncio.Event, clock: Clock) -> None:
    """Waits until the moment comes or the event is set, and not so long that the clock should be read
    again.
    """
    is_ever = moment < FAR - timedelta(days=1)
    await sleep_unless_woken(clock, sooner, min(moment - clock.now(), LONGEST_SLEEP) if is_ever else None)


async def run_rounds(
    store: Store,
    clock: Clock,
    hear: Callable[[frozenset[str]], None],
    run_round: Callable[[], Awaitable[None]],
    *,
    who_waits: str,
) -> None:
    """Runs rounds for ever while `hear` is told of every commit. Without the database they wait for it.
    Cancel it to stop.
    """
    leave: Callable[[], None] = store.on_commit(hear)
    try:
        while True:
            try:
                await run_round()
            except Unavailable as error:
                log.warning("%s for the database: %s", who_waits, error)
                await clock.sleep(DATABASE_RETRY)
    finally:
        leave()
