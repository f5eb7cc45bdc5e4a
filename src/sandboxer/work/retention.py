"""Old work is deleted: records of ended jobs and sessions and of removed services, each after its retention
time. This module also counts the work there is.

A few rows are deleted in each transaction, so that nobody waits behind a million of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection, Table, func, select

from sandboxer.kernel.clock import Clock
from sandboxer.store.engine import Store
from sandboxer.work.jobs import records as jobs
from sandboxer.work.jobs.lifecycle import State as JobState
from sandboxer.work.services import records as services
from sandboxer.work.services.lifecycle import State as ServiceState
from sandboxer.work.sessions import records as sessions
from sandboxer.work.sessions.lifecycle import State as SessionState

log = logging.getLogger(__name__)
EVERY = timedelta(hours=1)
AT_ONCE = 200
_KINDS: Mapping[str, tuple[Table, type[StrEnum]]] = {
    "jobs": (jobs.jobs, JobState),
    "sessions": (sessions.sessions, SessionState),
    "services": (services.services, ServiceState),
}

# Deletes at most that many rows that ended before that moment; returns how many.
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


async def remove_old(store: Store, now: datetime, what: Sequence[Kept]) -> int:
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
    return {kind: _by_state(conn, table, states, account) for kind, (table, states) in _KINDS.items()}


def _by_state(conn: Connection, table: Table, states: type[StrEnum], account: str | None) -> dict[str, int]:
    wanted = select(table.c.state, func.count()).group_by(table.c.state)
    if account is not None:
        wanted = wanted.where(table.c.account == account)
    found = {state: int(number) for state, number in conn.execute(wanted)}
    return {state.value: 0 for state in states} | found
