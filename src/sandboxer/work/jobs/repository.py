"""The job repository is the only writer of job records. The step that ends a job also queues the webhook its
caller asked for.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.observe import events
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.store import steps
from sandboxer.store.engine import Store
from sandboxer.store.repository import Repository
from sandboxer.work.execute.run import Outcome, outcome_from_json, outcome_to_json
from sandboxer.work.jobs import records
from sandboxer.work.jobs.records import FINAL, LIFECYCLE, Job, Signal

ACTOR = "system:jobs"


@value_class
class Step(steps.Step[Job, Signal]):
    actor: str = ACTOR
    outcome: Outcome | None = None


class JobRepository(Repository[Job, Step]):
    noun = "job"

    def __init__(
        self, store: Store, clock: Clock, webhooks: Webhooks, *, kept_bytes: int = 256 * 1024 * 1024
    ) -> None:
        super().__init__(store, clock, records.rows, LIFECYCLE)
        self._kept_bytes = kept_bytes
        # By account: bytes written since its old results were last checked.
        self._fresh: dict[str, int] = {}
        self._webhooks = webhooks

    async def glance(self, job_id: str) -> Job | None:
        """Returns the job without its submission."""
        return await self.store.read(lambda conn: records.light.load(conn, job_id))

    async def outcome(self, job_id: str) -> Outcome | None:
        kept = await self.store.read(lambda conn: records.result_of(conn, job_id))
        return None if kept is None else outcome_from_json(kept)

    async def take(self, job: Job, step: Step) -> Job:
        """Takes one step from the record as it was seen. Raises IllegalTransition, and Conflict if someone
        else moved it first: the job is then no longer the caller's.
        """
        return await self.store.write(lambda conn: self.step(conn, job, step))

    def _prepare(self, conn: Connection, change: steps.Change[Job, Step]) -> Job:
        return replace(change.after, submission=None) if change.after.state in FINAL else change.after

    def _record(self, conn: Connection, change: steps.Change[Job, Step]) -> None:
        job, now = change.after, change.now
        step = change.entries[-1].step if change.entries else None
        outcome = None if step is None else step.outcome
        if job.state in FINAL:
            kept = None if outcome is None else json.dumps(outcome_to_json(outcome)).encode()
            records.keep_outcome(conn, job.id, kept)
            if kept is not None:
                self._make_room(conn, job.account, len(kept))
        events.record(
            conn,
            subject=job.id,
            kind=f"job.{job.state.value}",
            actor=job.created_by if step is None else step.actor,
            reason=job.reason,
            at=now,
            data={"sandbox_id": job.sandbox_id, "language": job.language},
        )
        if job.state in FINAL and job.webhook_url is not None:
            self._tell(conn, job, outcome, now)

    def _make_room(self, conn: Connection, account: str, size: int) -> None:
        """Deletes old results. This happens not after every job, but never later than a quarter past the
        limit.
        """
        if (fresh := self._fresh.get(account, self._kept_bytes) + size) >= self._kept_bytes // 4:
            records.drop_old_results(conn, account, keep_bytes=self._kept_bytes)
            fresh = 0
        self._fresh[account] = fresh

    def _tell(self, conn: Connection, job: Job, outcome: Outcome | None, now: datetime) -> None:
        assert job.webhook_url is not None
        # The operator may no longer allow this address; the job ends all the same.
        with suppress(SandboxerError):
            self._webhooks.enqueue(
                conn,
                account=job.account,
                kind=f"job.{job.state.value}",
                url=job.webhook_url,
                payload=_summary(job, outcome),
                id=job.id,
                now=now,
            )


def _summary(job: Job, outcome: Outcome | None) -> dict[str, object]:
    return {
        "job_id": job.id,
        "state": job.state.value,
        "reason": job.reason,
        "language": job.language,
        "exit_code": None if outcome is None else outcome.exit_code,
        "sats": job.sats,
        "job": f"/v1/jobs/{job.id}",
    }
