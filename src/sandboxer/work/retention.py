"""Old work is deleted: records of ended jobs and sessions and of removed services, each after its retention
time. This module also counts the work there is.

A few rows are deleted in each transaction, so that nobody waits behind a million of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, delete, select

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.values import brief_value_class
from sandboxer.store.engine import Store
from sandboxer.store.rows import Rows
from sandboxer.work.jobs import records as jobs
from sandboxer.work.jobs.records import State as JobState
from sandboxer.work.services import records as services
from sandboxer.work.services.lifecycle import State as ServiceState
from sandboxer.work.sessions import records as sessions
from sandboxer.work.sessions.records import State as SessionState

log = logging.getLogger(__name__)
EVERY = timedelta(hours=1)
AT_ONCE = 200
_KINDS: Mapping[str, tuple[Rows[Any], type[StrEnum]]] = {
    "jobs": (jobs.light, JobState),
    "sessions": (sessions.rows, SessionState),
    "services": (services.rows, ServiceState),
}


@brief_value_class
class Kept:
    rows: Rows[Any]
    # When one of them was over.
    ended: Column[Any]
    for_: timedelta
    # Columns of other tables that name one of them; those rows go with it.
    named_by: tuple[Column[Any], ...] = ()

    def prune(self, conn: Connection, before: datetime, limit: int) -> int:
        """Deletes some of those that were over before that moment and returns how many."""
        table = self.rows.table
        old = select(table.c.id).where(~self.rows.is_left, self.ended < before).limit(limit)
        ids = list(conn.execute(old).scalars())
        for column in (*self.named_by, table.c.id):
            conn.execute(delete(column.table).where(column.in_(ids)))
        return len(ids)


def kept(*, jobs_for: timedelta, records_for: timedelta) -> Sequence[Kept]:
    domains = services.service_domains.c.service_id
    return (
        Kept(jobs.light, jobs.jobs.c.ended_at, jobs_for),
        Kept(sessions.rows, sessions.sessions.c.ended_at, records_for),
        Kept(services.rows, services.services.c.state_since, records_for, named_by=(domains,)),
    )


async def remove_old(store: Store, now: datetime, what: Sequence[Kept]) -> int:
    """Removes all that is due now and returns how many rows that were."""
    gone = 0
    for one in what:
        some = AT_ONCE
        while some == AT_ONCE:
            some = await store.write(partial(one.prune, before=now - one.for_, limit=AT_ONCE))
            gone += some
    return gone


async def keep_retention(store: Store, clock: Clock, what: Sequence[Kept]) -> None:
    """Removes, again and again, what is older than it may be kept. Cancel it to stop."""
    while True:
        try:
            await remove_old(store, clock.now(), what)
        except Exception:
            # An outermost loop: what could not be removed now is removed the next time.
            log.exception("old records of jobs, sessions and services could not be removed")
        await clock.sleep(EVERY)


def count_work(conn: Connection, account: str | None) -> dict[str, dict[str, int]]:
    """Counts work by kind and state, with zeros. `account` None counts everyone's."""
    return {
        kind: {state.value: 0 for state in states} | rows.counts(conn, account)
        for kind, (rows, states) in _KINDS.items()
    }
