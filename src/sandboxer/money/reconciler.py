"""One timer serves all buckets: it sleeps until the first moment at which one of them needs attention.

Each bucket row names that moment (`due_at`, indexed), so the timer reads one row however many meters live,
and nothing at all while nothing is due. A commit that names an earlier moment wakes it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, select

from sandboxer.kernel.clock import Clock
from sandboxer.money.buckets import DUE_TOPIC, settle_account
from sandboxer.money.tables import money_buckets
from sandboxer.store.engine import Store
from sandboxer.store.reconciler import FAR, Reconciler

# Buckets settled in one transaction: enough to catch up quickly, few enough to let others write between.
AT_ONCE = 50
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


class BucketTimer(Reconciler):
    """Runs until cancelled. What it finds is told as events (`account.low`, `.dry`, `.reaped`)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__("the balance timer", store, clock, retry=RETRY)
        self._is_news = False

    async def _round(self) -> datetime:
        if self._is_news:
            await self.clock.sleep(PAUSE)
            # Cleared before reading: a commit that the read misses sets it again.
            self._is_news = False
            self._awake.clear()
        moment = await self.store.read(next_due)
        now = self.clock.now()
        if moment is not None and moment <= now:
            await self.store.write(lambda conn: attend_due(conn, now=now))
        return FAR if moment is None else moment

    def _hear(self, topics: frozenset[str]) -> None:
        if DUE_TOPIC in topics:
            self._is_news = True
            self.wake()
