"""One timer serves all buckets: it sleeps until the first moment at which one of them needs attention.

Each bucket row names that moment (`due_at`, indexed), so the timer reads one row however many meters live,
and nothing at all while nothing is due. A commit that names an earlier moment wakes it.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, select

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Unavailable
from sandboxer.money.buckets import DUE_TOPIC, settle_account
from sandboxer.money.tables import money_buckets
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# Buckets settled in one transaction: enough to catch up quickly, few enough to let others write between.
AT_ONCE = 50
# A wall clock can be set forward while we sleep.
LONGEST_SLEEP = timedelta(seconds=30)
# Many commits in a row move the next moment many times; looking again after so long is soon enough.
PAUSE = timedelta(milliseconds=20)
RETRY = timedelta(seconds=1)

_due = money_buckets.c.due_at
_NEXT = select(_due).where(_due.is_not(None)).order_by(_due).limit(1)
_DUE_BY = select(money_buckets.c.owner).where(_due <= bindparam("now")).order_by(_due).limit(AT_ONCE)


def next_due(conn: Connection) -> datetime | None:
    """Return the first moment at which any bucket needs attention."""
    return conn.execute(_NEXT).scalar()


def attend_due(conn: Connection, *, now: datetime) -> list[str]:
    """Settle and judge some of the buckets that are due. Returns their owners; empty when none is left."""
    owners = list(conn.execute(_DUE_BY, {"now": now}).scalars())
    for owner in owners:
        settle_account(conn, owner, now=now)
    return owners


class BucketTimer:
    """Runs until cancelled. What it finds is told as events (`account.low`, `.dry`, `.reaped`)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changed = asyncio.Event()

    async def run(self) -> None:
        leave = self._store.on_commit(self._hear)
        try:
            while True:
                try:
                    await self._round()
                except Unavailable as error:
                    log.warning("the bucket timer waits for the database: %s", error)
                    await self._clock.sleep(RETRY)
        finally:
            leave()

    async def _round(self) -> None:
        # Cleared before reading: a commit that the read misses sets it again.
        self._changed.clear()
        moment = await self._store.read(next_due)
        now = self._clock.now()
        if moment is not None and moment <= now:
            await self._store.write(lambda conn: attend_due(conn, now=now))
            return
        delay = LONGEST_SLEEP if moment is None else min(moment - now, LONGEST_SLEEP)
        if await self._sleep(delay):
            await self._clock.sleep(min(PAUSE, delay))

    async def _sleep(self, delay: timedelta) -> bool:
        """True if a commit changed the moment meanwhile."""
        async with asyncio.TaskGroup() as group:
            asleep = group.create_task(self._clock.sleep(delay))
            changed = group.create_task(self._changed.wait())
            await asyncio.wait((asleep, changed), return_when=asyncio.FIRST_COMPLETED)
            asleep.cancel()
            changed.cancel()
        return self._changed.is_set()

    def _hear(self, topics: frozenset[str]) -> None:
        if DUE_TOPIC in topics:
            self._changed.set()
