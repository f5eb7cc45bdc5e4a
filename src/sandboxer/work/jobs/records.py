"""Jobs as rows. What a job was given is deleted when it ends; what it printed is kept for the
retention time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    delete,
    func,
    select,
    update,
)

from sandboxer.accounts.tables import delegated_keys
from sandboxer.identity.keys import Caller
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.rows import Page, Rows, enumerated
from sandboxer.store.sealed import SealedJson
from sandboxer.work.jobs.lifecycle import FINAL, State
from sandboxer.work.jobs.policy import Queue

OUTPUT_DROPPED = {
    "code": "output_dropped",
    "detail": "What this job printed made room for what newer jobs of its account printed.",
    "next_step": "Fetch results as they come (wait for the job, or give a webhook); run it again.",
    "facts": {},
}
_AT_ONCE = 500

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("is_owner", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("language", Text, nullable=False),
    # None after its end: code, files and environment are not kept longer than needed.
    Column("submission", SealedJson("jobs.submission")),
    Column("webhook_url", Text),
    Column("sandbox_id", Text),
    # Process ids, chosen before the start so that the processes can be found again.
    Column("compile_process", Text),
    Column("run_process", Text),
    Column("sats", Integer, nullable=False),
    # Why it could not be started or was lost, as the wire shows it.
    Column("problem", JsonValue),
    Column("created_at", UtcDateTime, nullable=False),
    # It is not tried again before this moment.
    Column("not_before", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("deadline", UtcDateTime),
    Column("ended_at", UtcDateTime),
    # The outcome as JSON. It may be large, so it is read for one job at a time only.
    Column("result", LargeBinary),
    # The size of what it was given, which counts while it waits.
    Column("size_bytes", Integer, nullable=False, server_default="0"),
    Index(None, "account", "created_at", "id"),
    Index(None, "state", "created_at"),
    Index(None, "ended_at"),
    # Covers everything that the queue's limits need, since the rows themselves may be megabytes.
    Index(None, "state", "account", "size_bytes"),
    Index(None, "sandbox_id"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    id: str
    version: int
    account: str
    created_by: str
    is_owner: bool
    state: State
    reason: str
    language: str
    submission: Mapping[str, Any] | None
    webhook_url: str | None
    sandbox_id: str | None
    compile_process: str | None
    run_process: str | None
    sats: int
    problem: Mapping[str, Any] | None
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None
    size_bytes: int = 0

    @property
    def caller(self) -> Caller:
        """Returns the caller that the job runs for."""
        return Caller(public_key=self.created_by, account=self.account, is_owner=self.is_owner)


# Limits count an account together with all keys cut below it: whoever cut them would have them all otherwise.
_with_keys = jobs.outerjoin(delegated_keys, delegated_keys.c.account == jobs.c.account)
_root = func.coalesce(delegated_keys.c.root, jobs.c.account)

rows = Rows(jobs, Job, prefix="job_", over=FINAL, cells={"state": enumerated(State)})
# The columns without the submission, which may be megabytes.
light = Rows(jobs, Job, prefix="job_", over=FINAL, cells={"state": enumerated(State)}, unread=["submission"])


def keep_outcome(conn: Connection, job_id: str, result: bytes | None) -> None:
    """Stores the outcome of an ended job and deletes what it was given, even if whoever ended it had not read
    that.
    """
    kept = {} if result is None else {"result": result}
    conn.execute(update(jobs).where(jobs.c.id == job_id).values(submission=None, **kept))


def result_of(conn: Connection, job_id: str) -> Mapping[str, Any] | None:
    kept = conn.execute(select(jobs.c.result).where(jobs.c.id == job_id)).scalar_one_or_none()
    return None if kept is None else json.loads(kept)


def in_state(conn: Connection, state: State) -> list[Job]:
    """Returns jobs in a state, oldest first, without their submissions."""
    query = light.select.where(jobs.c.state == state.value).order_by(jobs.c.created_at, jobs.c.id)
    return light.all(conn, query)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The part of a queued job that the queue needs."""

    id: str
    root: str
    not_before: datetime | None


def waiting(conn: Connection, limit: int, *, per_account: int) -> list[Waiting]:
    """Returns queued jobs, oldest first, and only the first few of each account with the keys below it, so
    that one long queue does not hide the others.
    """
    rank = func.row_number().over(partition_by=_root, order_by=(jobs.c.created_at, jobs.c.id))
    ranked = (
        select(jobs.c.id, _root.label("root"), jobs.c.not_before, jobs.c.created_at, rank.label("rank"))
        .select_from(_with_keys)
        .where(jobs.c.state == State.QUEUED.value)
        .subquery()
    )
    query = (
        select(ranked.c.id, ranked.c.root, ranked.c.not_before)
        .where(ranked.c.rank <= per_account)
        .order_by(ranked.c.created_at, ranked.c.id)
        .limit(limit)
    )
    return [Waiting(row.id, row.root, row.not_before) for row in conn.execute(query)]


def queue(conn: Connection, account: str | None = None) -> Queue:
    """Returns the queue of one account with all keys of its root, or of everybody."""
    query = select(func.count(), func.coalesce(func.sum(jobs.c.size_bytes), 0))
    query = query.where(jobs.c.state == State.QUEUED.value)
    if account is not None:
        query = query.select_from(_with_keys).where(_root == root_of(conn, account))
    count, size = conn.execute(query).one()
    return Queue(int(count), int(size))


def root_of(conn: Connection, account: str) -> str:
    """Returns the account itself, or the one that it was cut from in the first place."""
    query = select(delegated_keys.c.root).where(delegated_keys.c.account == account)
    return conn.execute(query).scalar_one_or_none() or account


def prune(conn: Connection, before: datetime, limit: int = _AT_ONCE) -> int:
    """Deletes some of the jobs that ended before that moment and returns how many."""
    ended = jobs.c.state.in_([s.value for s in FINAL])
    ids = select(jobs.c.id).where(ended, jobs.c.ended_at < before).limit(limit)
    old = [row.id for row in conn.execute(ids)]
    conn.execute(delete(jobs).where(jobs.c.id.in_(old)))
    return len(old)


def drop_old_results(conn: Connection, account: str, *, keep_bytes: int) -> int:
    """Deletes results of one account beyond the limit, oldest first, and returns how many."""
    size = func.length(jobs.c.result).label("size")
    mine = select(jobs.c.id, size).where(jobs.c.account == account, jobs.c.result.is_not(None))
    left, old = keep_bytes, []
    for row in conn.execute(mine.order_by(jobs.c.created_at.desc(), jobs.c.id.desc())):
        left -= row.size
        if left < 0:
            old.append(row.id)
    for at in range(0, len(old), _AT_ONCE):
        some = update(jobs).where(jobs.c.id.in_(old[at : at + _AT_ONCE]))
        conn.execute(some.values(result=None, problem=OUTPUT_DROPPED))
    return len(old)


def page(
    conn: Connection, *, account: str | None, state: State | None, cursor: str | None, limit: int
) -> Page[Job]:
    """Returns jobs, newest first. `account` None means everyone's."""
    query = light.select
    if account is not None:
        query = query.where(jobs.c.account == account)
    if state is not None:
        query = query.where(jobs.c.state == state.value)
    return light.page(conn, query, cursor=cursor, limit=limit)
