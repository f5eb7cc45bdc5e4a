"""A job: its states, the limits of the queue, and its rows.

Every change of state goes through `LIFECYCLE`. What a job was given is deleted when it ends; what it printed
is kept for the retention time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
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
    func,
    select,
    update,
)

from sandboxer.accounts.records import delegated_keys
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import QueueFull, TooLarge
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata, nullable, required
from sandboxer.store.rows import Record, Rows, enumerated
from sandboxer.store.sealed import SealedJson
from sandboxer.store.steps import Lifecycle


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    # The program ended by itself, whatever its exit code.
    FINISHED = "finished"
    # It did not compile, or could not be started: `reason` says which.
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    # Its sandbox went away while it ran.
    LOST = "lost"


class Signal(StrEnum):
    STARTED = "started"
    # It goes back to the queue: nothing of it ran yet, because the host was full or the server died while
    # making its sandbox.
    PUT_BACK = "put_back"
    ENDED = "ended"
    FAIL = "fail"
    CANCEL = "cancel"
    TIME_OVER = "time_over"
    LOSE = "lose"


TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (State.QUEUED, Signal.STARTED): State.RUNNING,
    **{(s, Signal.PUT_BACK): State.QUEUED for s in (State.QUEUED, State.RUNNING)},
    **{(s, Signal.FAIL): State.FAILED for s in (State.QUEUED, State.RUNNING)},
    **{(s, Signal.CANCEL): State.CANCELLED for s in (State.QUEUED, State.RUNNING)},
    (State.RUNNING, Signal.ENDED): State.FINISHED,
    (State.RUNNING, Signal.TIME_OVER): State.TIMED_OUT,
    (State.RUNNING, Signal.LOSE): State.LOST,
}
FINAL = frozenset({State.FINISHED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.LOST})


LIFECYCLE = Lifecycle(TRANSITIONS, ended=FINAL)


RETRY_AFTER_S = 10


@value_class
class JobPolicy:
    """How many jobs may run and wait, by count and by bytes, per account and in all, and how long ended ones
    are kept.
    """

    running_per_account: int
    running: int
    queued_per_account: int
    queued: int = 10_000
    # Bytes given to waiting jobs: code, files, input.
    queued_bytes_per_account: int = 64 << 20
    queued_bytes: int = 1 << 30
    retention: timedelta
    # Bytes of output kept for ended jobs of one account; beyond it the oldest outputs are deleted.
    kept_bytes: int = 256 * 1024 * 1024


@brief_value_class
class Queue:
    """How many jobs wait, and how many bytes they were given together."""

    jobs: int
    bytes: int


def refuse_alone(size: int, policy: JobPolicy) -> None:
    """Raises TooLarge for a job that even an empty queue would refuse."""
    limit = min(policy.queued_bytes_per_account, policy.queued_bytes)
    if size > limit:
        raise TooLarge(
            what="what this job was given",
            limit=limit,
            size=size,
            hint="Give it less: let it fetch its files from a volume, or run it without queueing.",
        )


def refuse_one_more(size: int, mine: Queue, all_: Queue, policy: JobPolicy) -> None:
    """Raises QueueFull if the queue cannot take another of this size."""
    bounds = (
        ("account", mine, policy.queued_per_account, policy.queued_bytes_per_account),
        ("platform", all_, policy.queued, policy.queued_bytes),
    )
    for owner, queue, most, most_bytes in bounds:
        if queue.jobs >= most:
            why = f"{most} jobs of this {owner} are waiting already"
            raise QueueFull(why=why, reason="jobs", of=owner, limit=most, retry_after_s=RETRY_AFTER_S)
        if queue.bytes + size > most_bytes:
            why = (
                f"jobs of this {owner} that wait hold {queue.bytes} bytes; "
                f"with {size} more that is past {most_bytes}"
            )
            raise QueueFull(why=why, reason="bytes", of=owner, limit=most_bytes, retry_after_s=RETRY_AFTER_S)


OUTPUT_DROPPED = {
    "code": "output_dropped",
    "detail": "What this job printed made room for what newer jobs of its account printed.",
    "next_step": "Fetch results as they come (wait for the job, or give a webhook); run it again.",
    "facts": {},
}
_AT_ONCE = 500


@value_class
class Job(Record):
    is_owner: bool
    state: State
    language: str
    # None after its end: code, files and environment are not kept longer than needed.
    submission: Mapping[str, Any] | None
    webhook_url: str | None
    sandbox_id: str | None = None
    # Process ids, chosen before the start so that the processes can be found again.
    compile_process: str | None = None
    run_process: str | None = None
    sats: int = 0
    # Why it could not be started or was lost, as the wire shows it.
    problem: Mapping[str, Any] | None = None
    # It is not tried again before this moment.
    not_before: datetime | None = None
    started_at: datetime | None = None
    deadline: datetime | None = None
    ended_at: datetime | None = None
    # The size of what it was given, which counts while it waits.
    size_bytes: int = 0

    @property
    def caller(self) -> Caller:
        """Returns the caller that the job runs for."""
        return Caller(public_key=self.created_by, account=self.account, is_owner=self.is_owner)


jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    *required(Text, "account", "created_by"),
    Column("is_owner", Boolean, nullable=False),
    *required(Text, "state", "reason", "language"),
    # None after its end: code, files and environment are not kept longer than needed.
    Column("submission", SealedJson("jobs.submission")),
    *nullable(Text, "webhook_url", "sandbox_id"),
    # Process ids, chosen before the start so that the processes can be found again.
    *nullable(Text, "compile_process", "run_process"),
    Column("sats", Integer, nullable=False),
    # Why it could not be started or was lost, as the wire shows it.
    Column("problem", JsonValue),
    Column("created_at", UtcDateTime, nullable=False),
    # It is not tried again before this moment.
    *nullable(UtcDateTime, "not_before", "started_at", "deadline", "ended_at"),
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


@brief_value_class
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
