"""The operations on execute."""

from __future__ import annotations

from sandboxer.wire.execute import ExecuteCode, ExecuteLater, Execution
from sandboxer.wire.jobs import JobSummary
from sandboxer.wire.operations.declaration import (
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Json,
    NoParameters,
    Operation,
)
from sandboxer.wire.operations.terms import Access, Idempotency, RateClass, Scope, needs

EXECUTE_CODE = Operation(
    id="executeCode",
    method="POST",
    path="/v1/execute",
    noun="execute",
    summary="Run code in a sandbox of its own, which is gone afterwards",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(ExecuteCode),
    answer=AnsweredOrEvents(
        model=Execution,
        words="How it ended; or, streamed: `placed`, `began`, `stdout` and `stderr`, then `done` or `error`.",
    ),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_CREATE),
    rate=RateClass.API,
    idempotency=Idempotency.BOUND,
    failures=(402, 404, 409, 502),
)
EXECUTE_LATER = Operation(
    id="executeLater",
    method="POST",
    path="/v1/execute/async",
    noun="execute",
    summary="Queue code as a job",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(ExecuteLater),
    answer=Answered(model=JobSummary, status=202),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_CREATE),
    rate=RateClass.API,
    idempotency=Idempotency.BOUND,
    failures=(404, 409),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    EXECUTE_CODE,
    EXECUTE_LATER,
)
