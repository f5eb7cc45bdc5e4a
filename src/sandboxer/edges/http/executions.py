"""Runs of code and jobs in the words of the wire."""

from __future__ import annotations

import base64
from typing import Any

from sandboxer.edges.http.answers import printable
from sandboxer.edges.http.streams import in_words
from sandboxer.wire import execute as wire
from sandboxer.wire import jobs as wire_jobs
from sandboxer.work.execute.outcome import Outcome, StageResult
from sandboxer.work.jobs.desk import Seen
from sandboxer.work.jobs.records import Job


def execution(
    outcome: Outcome,
    *,
    language: str,
    version: str | None = None,
    encoding: str = "utf-8",
    sandbox_id: str | None = None,
    sats: int = 0,
    total_ms: float | None = None,
) -> wire.Execution:
    run = outcome.run
    return wire.Execution.model_construct(
        language=language,
        version=version,
        sandbox_id=sandbox_id,
        exit_code=outcome.exit_code,
        stdout="" if run is None else in_words(run.stdout, encoding),
        stderr="" if run is None else in_words(run.stderr, encoding),
        stdout_dropped=0 if run is None else run.stdout_dropped,
        stderr_dropped=0 if run is None else run.stderr_dropped,
        encoding=encoding,
        timed_out=outcome.timed_out,
        truncated=outcome.truncated,
        reason=outcome.reason,
        duration_ms=None if run is None or run.end is None else run.end.duration_ms,
        total_ms=total_ms,
        compile=_compiled(outcome.compile, encoding),
        artifacts=[
            wire.Artifact.model_construct(
                name=printable(one.name),
                size=len(one.data),
                mode=one.mode,
                content=base64.b64encode(one.data).decode(),
            )
            for one in outcome.collected.artifacts
        ],
        left_out=[
            wire.LeftOut.model_construct(name=printable(one.name), why=one.why, size=one.size)
            for one in outcome.collected.left_out
        ],
        sats=sats,
    )


def job(seen: Seen, encoding: str = "utf-8", version: str | None = None) -> wire_jobs.Job:
    found = seen.job
    result = None
    if seen.outcome is not None:
        result = execution(
            seen.outcome,
            language=found.language,
            version=version,
            encoding=encoding,
            sandbox_id=found.sandbox_id,
            sats=found.sats,
        )
    return wire_jobs.Job.model_construct(**_facts(found), result=result)


def job_summary(found: Job) -> wire_jobs.JobSummary:
    return wire_jobs.JobSummary.model_construct(**_facts(found))


def _facts(found: Job) -> dict[str, Any]:
    problem = found.problem
    return {
        "id": found.id,
        "state": found.state.value,
        "reason": found.reason,
        "language": found.language,
        "sandbox_id": found.sandbox_id,
        "sats": found.sats,
        "webhook_url": found.webhook_url,
        "problem": None if problem is None else wire_jobs.JobProblem.model_construct(**problem),
        "created_at": found.created_at,
        "started_at": found.started_at,
        "ended_at": found.ended_at,
    }


def _compiled(stage: StageResult | None, encoding: str) -> wire.Compiled | None:
    if stage is None:
        return None
    end = stage.end
    return wire.Compiled.model_construct(
        exit_code=None if end is None else end.exit_code,
        stdout=in_words(stage.stdout, encoding),
        stderr=in_words(stage.stderr, encoding),
        stdout_dropped=stage.stdout_dropped,
        stderr_dropped=stage.stderr_dropped,
        timed_out=end is not None and end.timed_out,
        duration_ms=None if end is None else end.duration_ms,
    )
