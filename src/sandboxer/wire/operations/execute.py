"""The operations on code that is run once, at once or as a job."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.execute import ExecuteCode, ExecuteLater, Execution, Job, JobPage, JobState, JobSummary
from sandboxer.wire.operations.declaration import (
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Idempotency,
    Json,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import JobPath
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, Encoding

EXECUTE_CODE = Operation(
    id="executeCode",
    method="POST",
    path="/v1/execute",
    noun="execute",
    summary="Run code in a sandbox of its own, which is gone afterwards",
    body=Json(ExecuteCode),
    answer=AnsweredOrEvents(
        model=Execution,
        words="How it ended; or, streamed: `placed`, `began`, `stdout` and `stderr`, then `done` or `error`.",
    ),
    needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC),
    idempotency=Idempotency.BOUND,
    failures=(402, 404, 409, 502),
)
EXECUTE_LATER = Operation(
    id="executeLater",
    method="POST",
    path="/v1/execute/async",
    noun="execute",
    summary="Queue code as a job",
    body=Json(ExecuteLater),
    answer=Answered(model=JobSummary, status=202),
    needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC),
    idempotency=Idempotency.BOUND,
    failures=(404, 409),
)
WAIT_MAX_S = 60.0


class ListJobsQuery(Parameters):
    state: JobState | None = None
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class GetJobQuery(Parameters):
    wait_s: Annotated[
        float, Field(ge=0, le=WAIT_MAX_S, description="Answer when it has ended, or after so long.")
    ] = 0.0
    encoding: Encoding = "utf-8"


class CancelJobQuery(Parameters):
    encoding: Encoding = "utf-8"


LIST_JOBS = Operation(
    id="listJobs",
    method="GET",
    path="/v1/jobs",
    noun="jobs",
    summary="List jobs, newest first",
    query=ListJobsQuery,
    answer=Answered(model=JobPage),
    needs=needs(Scope.EXEC),
)
GET_JOB = Operation(
    id="getJob",
    method="GET",
    path="/v1/jobs/{job_id}",
    noun="jobs",
    summary="Look at a job, and at what it has printed so far",
    parameters=JobPath,
    query=GetJobQuery,
    answer=Answered(model=Job),
    needs=needs(Scope.EXEC),
    failures=(404,),
    operator_audit=OperatorAudit(thing="job", action="job.get"),
)
CANCEL_JOB = Operation(
    id="cancelJob",
    method="DELETE",
    path="/v1/jobs/{job_id}",
    noun="jobs",
    summary="Cancel a job: answers with what it had printed; one that has ended stays as it is",
    parameters=JobPath,
    query=CancelJobQuery,
    answer=Answered(model=Job),
    needs=needs(Scope.EXEC),
    is_repeatable=True,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="job", action="job.destroy"),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    EXECUTE_CODE,
    EXECUTE_LATER,
    LIST_JOBS,
    GET_JOB,
    CANCEL_JOB,
)
