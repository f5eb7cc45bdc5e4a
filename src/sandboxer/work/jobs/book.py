"""The book of jobs: every step is one transaction that moves the record, records the event, and tells who
asked to be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, SandboxerError
from sandboxer.observe import events
from sandboxer.observe.webhooks.room import Webhooks
from sandboxer.store.engine import Store
from sandboxer.work.execute import outcome as outcomes
from sandboxer.work.execute.outcome import Outcome
from sandboxer.work.jobs import records
from sandboxer.work.jobs.lifecycle import FINAL, Signal, next_state
from sandboxer.work.jobs.records import Job

ACTOR = "system:jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    signal: Signal
    reason: str
    actor: str = ACTOR
    changes: Mapping[str, Any] | None = None
    outcome: Outcome | None = None


class JobBook:
    def __init__(
        self, store: Store, clock: Clock, webhooks: Webhooks, *, kept_bytes: int = 256 * 1024 * 1024
    ) -> None:
        self.store = store
        self._kept_bytes = kept_bytes
        # Bytes written for each account since its old results were looked at.
        self._fresh: dict[str, int] = {}
        self._clock = clock
        self._webhooks = webhooks

    async def find(self, job_id: str) -> Job | None:
        return await self.store.read(lambda conn: records.find(conn, job_id))

    async def glance(self, job_id: str) -> Job | None:
        """Without what it runs."""
        return await self.store.read(lambda conn: records.glance(conn, job_id))

    async def outcome(self, job_id: str) -> Outcome | None:
        kept = await self.store.read(lambda conn: records.result_of(conn, job_id))
        return None if kept is None else outcomes.from_json(kept)

    async def move(self, job: Job, step: Step) -> Job:
        """Raises IllegalTransition, and Conflict when someone else moved it first."""
        return await self.store.write(lambda conn: self.step(conn, job, step))

    def open(self, conn: Connection, job: Job) -> None:
        records.add(conn, job)
        _record(conn, job, actor=job.created_by, now=job.created_at)

    def step(self, conn: Connection, job: Job, step: Step) -> Job:
        """One step, in a transaction of the caller's."""
        now = self._clock.now()
        state = next_state(job.state, step.signal)
        changes: dict[str, Any] = {"state": state, "reason": step.reason, **(step.changes or {})}
        kept: dict[str, Any] = {}
        if state in FINAL:
            changes |= {"ended_at": now, "submission": None}
            if step.outcome is not None:
                kept = {"result": json.dumps(outcomes.to_json(step.outcome)).encode()}
        after = replace(job, version=job.version + 1, **changes)
        if not records.change(conn, job, {**changes, "state": state.value, **kept}):
            raise Conflict(why=f"job {job.id} was changed by someone else")
        if kept:
            self._make_room(conn, job.account, len(kept["result"]))
        _record(conn, after, actor=step.actor, now=now)
        if state in FINAL and after.webhook_url is not None:
            self._tell(conn, after, step.outcome, now)
        return after

    def _make_room(self, conn: Connection, account: str, size: int) -> None:
        """Not with every job, and never later than a quarter past the bound."""
        fresh = self._fresh.get(account, self._kept_bytes) + size
        if fresh >= self._kept_bytes // 4:
            records.drop_old_results(conn, account, keep_bytes=self._kept_bytes)
            fresh = 0
        self._fresh[account] = fresh

    def _tell(self, conn: Connection, job: Job, outcome: Outcome | None, now: datetime) -> None:
        assert job.webhook_url is not None
        try:
            self._webhooks.enqueue(
                conn,
                account=job.account,
                kind=f"job.{job.state.value}",
                url=job.webhook_url,
                payload=_summary(job, outcome),
                id=job.id,
                now=now,
            )
        except SandboxerError:
            # The operator no longer allows this address; the job ended all the same.
            return


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


def _record(conn: Connection, job: Job, *, actor: str, now: datetime) -> None:
    events.record(
        conn,
        subject=job.id,
        kind=f"job.{job.state.value}",
        actor=actor,
        reason=job.reason,
        at=now,
        data={"sandbox_id": job.sandbox_id, "language": job.language},
    )
