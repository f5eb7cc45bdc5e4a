"""The runner takes one job from its place in the queue to its end, or continues it where a previous server
left it.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from sandboxer.accounts.authority import demand_active
from sandboxer.backends.guest import Process
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import (
    BackendLost,
    Broken,
    Forbidden,
    IllegalTransition,
    InsufficientCredit,
    NotFound,
    SandboxerError,
)
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.passing import CLEANER, Claim, Endings
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.exec import kill_quietly
from sandboxer.work.execute.one_shot import Places, cost, will_pass
from sandboxer.work.execute.run import (
    Attempt,
    Began,
    Ended,
    Outcome,
    ProcessIds,
    Recorder,
    happen,
    new_process_ids,
)
from sandboxer.work.execute.submission import Submission, from_json, make_plan
from sandboxer.work.jobs.records import FINAL, Job, Signal, State
from sandboxer.work.jobs.repository import JobRepository, Step
from sandboxer.work.languages import HostImages
from sandboxer.work.lines import Lines, loss_of

log = logging.getLogger(__name__)
# If the host is full or all slots are taken, the job is tried again after RETRY and given up after PATIENCE.
RETRY = timedelta(seconds=5)
PATIENCE = timedelta(hours=1)


@dataclass(slots=True, eq=False)
class Live:
    """A job that this server is running."""

    # The account that its limits count for: its own, or the one that its key was cut from.
    root: str
    recorder: Recorder | None = None
    process: Process | None = None
    is_cancelled: bool = False
    # The caller who cancelled it.
    actor: str = ""

    def outcome(self) -> Outcome | None:
        return None if self.recorder is None else self.recorder.outcome()

    async def cancel(self, actor: str) -> None:
        """Makes the job end; the runner notices how it ended."""
        self.is_cancelled, self.actor = True, actor
        if self.process is not None:
            await kill_quietly(self.process)


@value_class
class Runner:
    repository: JobRepository
    clock: Clock
    places: Places
    endings: Endings
    images: HostImages
    budget: Budget

    @property
    def sandboxes(self) -> SandboxDependencies:
        return self.places.sandboxes

    async def attend(self, job_id: str, live: Live) -> None:
        """Returns when the job has ended or went back to the queue. If cancelled, it leaves the program
        running.
        """
        if (job := await self.repository.find(job_id)) is None or job.state in FINAL:
            return
        try:
            if job.state is State.QUEUED:
                await self._begin(job, live)
            else:
                await self._go_on(job, live)
        except SandboxerError as error:
            await self._fail(job_id, live, error)
        except Exception as error:
            # An outermost loop: a bug met by one job must not end the others.
            log.exception("job %s broke", job_id)
            await self._fail(job_id, live, Broken(why=repr(error)))

    async def _begin(self, job: Job, live: Live) -> None:
        if live.is_cancelled:
            await self.repository.take(job, Step(signal=Signal.CANCEL, reason="cancelled", actor=live.actor))
            return
        ids, now = new_process_ids(), self.clock.now()
        submission = _submission(job)

        def started(conn: Connection, sandbox_id: str) -> None:
            changes = {"sandbox_id": sandbox_id, "compile_process": ids.compile, "run_process": ids.run}
            times = {"started_at": now, "deadline": now + timedelta(seconds=submission.ttl_s)}
            step = Step(signal=Signal.STARTED, reason="started", changes={**changes, **times})
            self.repository.step(conn, job, step)

        claim = Claim(now, started)
        if not job.is_owner:
            # The queue may have been long: a caller who may no longer act starts nothing.
            demand_active(await self.places.authorities.of(job.caller), now=now)
        plan = make_plan(submission, await self.images.image_of())
        sandbox = await self.places.make(plan, job.caller, claim)
        self.endings.own(sandbox.id)
        await self._run(job.id, live, sandbox, ids, float(submission.ttl_s), resume=False)

    async def _go_on(self, job: Job, live: Live) -> None:
        """Continues a job that a previous server had begun."""
        if job.sandbox_id is None or job.compile_process is None or job.run_process is None:
            raise Broken(why=f"job {job.id} runs nowhere")
        if (sandbox := await creation.recall(self.sandboxes, job.sandbox_id, CLEANER)) is None:
            # It was never ready, so nothing of the job has run.
            await self.repository.take(job, Step(signal=Signal.PUT_BACK, reason="never_started"))
            self.endings.soon(job.sandbox_id)
            return
        self.endings.own(sandbox.id)
        ids = ProcessIds(compile=job.compile_process, run=job.run_process)
        left = 0.0 if job.deadline is None else (job.deadline - self.clock.now()).total_seconds()
        await self._run(job.id, live, sandbox, ids, max(0.0, left), resume=True)

    async def _run(
        self, job_id: str, live: Live, sandbox: Sandbox, ids: ProcessIds, seconds: float, *, resume: bool
    ) -> None:
        job = await self._reload(job_id)
        plan = make_plan(_submission(job))
        deadline = self.clock.now().timestamp() + seconds
        root = job.account if job.is_owner else (await self.places.authorities.of(job.caller)).root
        with self.budget.lease(root) as lease:
            attempt = Attempt(
                plan=plan,
                ids=ids,
                seconds=seconds,
                deadline=deadline,
                keep=True,
                resume=resume,
                lease=lease,
            )
            recorder = live.recorder = Recorder(plan.submission.output_limit, lease)
            if not live.is_cancelled:
                await self._follow(job, live, sandbox, attempt, recorder)
            outcome = recorder.outcome()
            if not live.is_cancelled:
                await Lines(self.sandboxes).check_standing(sandbox.id, outcome.exit_code)
            sats = await cost(self.repository.store, self.clock, sandbox)
            await self._end(job, verdict(outcome, live), outcome, {"sats": sats})

    async def _follow(
        self, job: Job, live: Live, sandbox: Sandbox, attempt: Attempt, recorder: Recorder
    ) -> None:
        async with (
            Lines(self.sandboxes).open(sandbox.id, job.caller, ActivityKind.EXEC) as line,
            aclosing(happen(line, attempt)) as events,
        ):
            async for event in events:
                await recorder.take(event)
                match event:
                    case Began(process=process):
                        live.process = process
                        if live.is_cancelled:
                            await kill_quietly(process)
                    case Ended():
                        live.process = None

    async def _end(self, job: Job, step: Step, outcome: Outcome | None, changes: dict[str, Any]) -> None:
        await self.repository.take(job, replace(step, changes=changes, outcome=outcome))
        if job.sandbox_id is not None:
            self.endings.soon(job.sandbox_id)

    async def _fail(self, job_id: str, live: Live, error: SandboxerError) -> None:
        """Records a job that could not be started, or was lost while it ran."""
        job = await self._reload(job_id)
        now = self.clock.now()
        if live.is_cancelled:
            cancelled = Step(signal=Signal.CANCEL, reason="cancelled", actor=live.actor)
            await self._end(job, cancelled, live.outcome(), {})
        elif will_pass(error) and live.recorder is None and now - job.created_at < PATIENCE:
            changes = {"not_before": now + RETRY, "sandbox_id": None}
            await self.repository.take(job, Step(signal=Signal.PUT_BACK, reason=error.code, changes=changes))
            if job.sandbox_id is not None:
                self.endings.soon(job.sandbox_id)
        elif job.state is State.RUNNING and live.recorder is not None and _is_loss(error):
            why = error if job.sandbox_id is None else await loss_of(self.sandboxes, job.sandbox_id, error)
            step = Step(signal=Signal.LOSE, reason=await self._what_became(job))
            await self._end(job, step, live.outcome(), {"problem": problem_of(why)})
        else:
            failed = Step(signal=Signal.FAIL, reason=error.code)
            await self._end(job, failed, live.outcome(), {"problem": problem_of(error)})

    async def _what_became(self, job: Job) -> str:
        """Returns one word for why the sandbox of a job no longer exists."""
        assert job.sandbox_id is not None
        try:
            sandbox = await self.sandboxes.visible(job.sandbox_id, CLEANER)
        except NotFound:
            return "sandbox_gone"
        return f"sandbox_{sandbox.state.value}"

    async def _reload(self, job_id: str) -> Job:
        if (job := await self.repository.find(job_id)) is None:
            raise Broken(why=f"job {job_id} has no record")
        return job


def verdict(outcome: Outcome, live: Live) -> Step:
    """Returns the step for a job whose program has ended."""
    if live.is_cancelled:
        return Step(signal=Signal.CANCEL, reason="cancelled", actor=live.actor)
    reason = outcome.reason
    if outcome.timed_out:
        return Step(signal=Signal.TIME_OVER, reason="timed_out")
    if outcome.run is None:
        return Step(signal=Signal.FAIL, reason=reason or "compile_failed")
    return Step(signal=Signal.ENDED, reason=reason or "exited")


def problem_of(error: SandboxerError) -> dict[str, object]:
    plain = {k: v for k, v in error.facts.items() if isinstance(v, str | int | float | bool)}
    return {"code": error.code, "detail": str(error), "next_step": error.next_step, "facts": plain}


def _submission(job: Job) -> Submission:
    if job.submission is None:
        raise Broken(why=f"job {job.id} has nothing to run")
    return from_json(job.submission)


def _is_loss(error: SandboxerError) -> bool:
    """Tells whether a running program lost its sandbox, also for want of sats or at a cap (see
    `work/lines`).
    """
    by_money = InsufficientCredit | Forbidden
    return isinstance(error, BackendLost | IllegalTransition | NotFound | by_money)
