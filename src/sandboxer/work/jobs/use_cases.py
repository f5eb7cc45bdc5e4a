"""The use cases of jobs, and the queue behind them: a limited number runs at once for each account, oldest
first.
"""

from __future__ import annotations

import asyncio
import json
import logging

from sqlalchemy import Connection

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, IllegalTransition, NotFound
from sandboxer.kernel.tasks import Changes, TaskOwner
from sandboxer.kernel.values import new_id, value_class
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page
from sandboxer.work.execute.run import Outcome
from sandboxer.work.execute.submission import Plan, to_json
from sandboxer.work.jobs import records
from sandboxer.work.jobs.records import FINAL, Job, JobPolicy, Signal, State, refuse_alone, refuse_one_more
from sandboxer.work.jobs.repository import JobRepository, Step
from sandboxer.work.jobs.runner import RETRY, Live, Runner

log = logging.getLogger(__name__)
# Queued jobs read at once.
LOOK_AHEAD = 1000
# Jobs of one account read beyond those that may run, since the first ones may have to wait for their moment.
LATE = 16
# A cancelled program is killed within milliseconds; after this time its sandbox is in trouble and the caller
# is told.
CANCEL_WAIT_S = 15.0


@value_class
class Seen:
    """A job and the output it has so far."""

    job: Job
    outcome: Outcome | None


class Jobs:
    def __init__(
        self, repository: JobRepository, runner: Runner, policy: JobPolicy, tasks: TaskOwner
    ) -> None:
        self._repository = repository
        self._runner = runner
        self._policy = policy
        self._tasks = tasks
        self._live: dict[str, Live] = {}
        self._called = asyncio.Event()
        self._changes = Changes()

    async def submit(
        self, plan: Plan, caller: Caller, *, webhook_url: str | None = None, also: Also | None = None
    ) -> Job:
        """Queues a job. `also` is written in the transaction of the record. Raises QueueFull, and TooLarge
        for what would never fit.
        """
        now = self._repository.clock.now()
        given = to_json(plan.submission)
        job = Job(
            id=new_id("job"),
            account=caller.account,
            created_by=caller.public_key,
            is_owner=caller.is_owner,
            state=State.QUEUED,
            reason="queued",
            language=plan.language.name,
            submission=given,
            webhook_url=webhook_url,
            created_at=now,
            size_bytes=len(json.dumps(given)),
        )
        refuse_alone(job.size_bytes, self._policy)

        def write(conn: Connection) -> None:
            refuse_one_more(
                job.size_bytes, records.queue(conn, job.account), records.queue(conn), self._policy
            )
            self._repository.add(conn, job, also=also, now=now)

        await self._repository.store.write(write)
        self._called.set()
        return job

    async def get(self, job_id: str, caller: Caller) -> Seen:
        """Returns the job; while it runs, with what it has printed so far."""
        job = await self._visible(job_id, caller)
        live = self._live.get(job_id)
        if job.state in FINAL or live is None:
            return Seen(job=job, outcome=await self._repository.outcome(job_id))
        return Seen(job=job, outcome=live.outcome())

    async def list(
        self, caller: Caller, *, state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Job]:
        """Returns jobs, newest first. The owner sees everyone's."""
        light = records.light
        query = light.matching(account=None if caller.is_owner else caller.account, state=state)
        return await self._repository.store.read(
            lambda conn: light.page(conn, query, cursor=cursor, limit=limit)
        )

    async def wait(self, job_id: str, caller: Caller, *, timeout_s: float) -> Seen:
        """Returns what `get` returns, once the job has ended or the time is over."""
        await self._visible(job_id, caller)
        await self._ended(job_id, timeout_s)
        return await self.get(job_id, caller)

    async def cancel(self, job_id: str, caller: Caller) -> Seen:
        """Ends the job and returns what it had printed. A job that has ended already is returned as it is."""
        job = await self._visible(job_id, caller)
        if (live := self._live.get(job_id)) is not None:
            await live.cancel(caller.public_key)
            await self._ended(job_id, CANCEL_WAIT_S)
        elif job.state is State.QUEUED:
            step = Step(signal=Signal.CANCEL, reason="cancelled", actor=caller.public_key)
            try:
                await self._repository.take(job, step)
                self._changes.tell(job_id)
            except (Conflict, IllegalTransition):
                # It was started or ended at this moment.
                return await self.cancel(job_id, caller)
        return await self.get(job_id, caller)

    async def adopt(self) -> None:
        """Continues the jobs that a previous server left running. This must happen before anything is swept
        away.
        """
        for job, root in await self._repository.store.read(_running_with_roots):
            if job.sandbox_id is not None:
                self._runner.endings.own(job.sandbox_id)
            self._start(job.id, root)

    async def run(self) -> None:
        """Starts queued jobs until it is cancelled."""
        while True:
            self._called.clear()
            try:
                is_any_late = await self._start_due()
            except Exception:
                # An outermost loop: a database that is away for a moment must not end the queue.
                log.exception("could not look at the queue of jobs")
                is_any_late = True
            try:
                async with asyncio.timeout(RETRY.total_seconds() if is_any_late else None):
                    await self._called.wait()
            except TimeoutError:
                continue

    async def _start_due(self) -> bool:
        """Starts what is due. Returns True if some jobs wait for a moment in time and not for the end of
        another job.
        """
        now, is_any_late = self._repository.clock.now(), False
        mine = self._policy.running_per_account
        for found in await self._repository.store.read(
            lambda conn: records.waiting(conn, LOOK_AHEAD, per_account=mine + LATE)
        ):
            if found.id in self._live:
                continue
            if len(self._live) >= self._policy.running:
                break
            if found.not_before is not None and found.not_before > now:
                is_any_late = True
            elif self._running_of(found.root) < self._policy.running_per_account:
                self._start(found.id, found.root)
        return is_any_late

    def _running_of(self, root: str) -> int:
        return sum(1 for live in self._live.values() if live.root == root)

    def _start(self, job_id: str, root: str) -> None:
        live = self._live[job_id] = Live(root=root)
        self._tasks.start(self._attend(job_id, live), name=f"job {job_id}")

    async def _attend(self, job_id: str, live: Live) -> None:
        try:
            await self._runner.attend(job_id, live)
        except Exception:
            # Not even its failure could be recorded; the next start of the server finds it again.
            log.exception("job %s is stuck", job_id)
        finally:
            del self._live[job_id]
            self._called.set()
        self._changes.tell(job_id)

    async def _visible(self, job_id: str, caller: Caller) -> Job:
        job = await self._repository.glance(job_id)
        if job is None or not (caller.is_owner or job.account == caller.account):
            raise NotFound(what="job", id=job_id)
        return job

    async def _ended(self, job_id: str, timeout_s: float) -> None:
        """Returns when the job has ended, or after `timeout_s`."""

        async def is_over() -> bool:
            job = await self._repository.glance(job_id)
            return job is None or job.state in FINAL

        await self._changes.until(job_id, is_over, timeout_s=timeout_s)


def _running_with_roots(conn: Connection) -> list[tuple[Job, str]]:
    return [(job, records.root_of(conn, job.account)) for job in records.in_state(conn, State.RUNNING)]
