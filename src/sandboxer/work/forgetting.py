"""Forgets what is over: records of ended jobs and sessions and of removed services, after their time.

A few at a time, each in a transaction of its own: nobody waits behind a million rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock
from sandboxer.store.engine import Store
from sandboxer.work.jobs import records as jobs
from sandboxer.work.services import records as services
from sandboxer.work.sessions import records as sessions

log = logging.getLogger(__name__)
EVERY = timedelta(hours=1)
AT_ONCE = 200

# Removes at most so many rows that were over before then; how many.
Prune = Callable[[Connection, datetime, int], int]


@dataclass(frozen=True, slots=True)
class Kept:
    what: str
    prune: Prune
    for_: timedelta


def kept(*, jobs_for: timedelta, records_for: timedelta) -> Sequence[Kept]:
    return (
        Kept("jobs", jobs.prune, jobs_for),
        Kept("sessions", sessions.prune, records_for),
        Kept("services", services.prune, records_for),
    )


async def forget_old(store: Store, now: datetime, what: Sequence[Kept]) -> int:
    """All that is due now; how many rows."""
    gone = 0
    for one in what:
        before, some = now - one.for_, AT_ONCE
        while some == AT_ONCE:

            def prune(conn: Connection, prune: Prune = one.prune, before: datetime = before) -> int:
                return prune(conn, before, AT_ONCE)

            some = await store.write(prune)
            gone += some
    return gone


async def keep_forgetting(store: Store, clock: Clock, what: Sequence[Kept]) -> None:
    """For ever; cancel it to stop."""
    while True:
        try:
            await forget_old(store, clock.now(), what)
        except Exception:
            # An outermost loop: what could not be removed now is removed the next time.
            log.exception("old records of jobs, sessions and services could not be removed")
        await clock.sleep(EVERY)
