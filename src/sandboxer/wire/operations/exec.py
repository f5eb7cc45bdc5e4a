"""The operations on exec."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.exec import ExecResult, RunCommand
from sandboxer.wire.operations.declaration import AnsweredOrEvents, AnyOperation, Json, Operation, Parameters
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.operations.terms import Access, RateClass, Scope, Visit, needs


class RunCommandQuery(Parameters):
    is_streamed: Annotated[
        bool,
        Field(alias="stream", description="Server-sent events, as `Accept: text/event-stream` asks for."),
    ] = False


RUN_COMMAND = Operation(
    id="runCommand",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/exec",
    noun="exec",
    summary="Run a command to its end",
    parameters=SandboxPath,
    query=RunCommandQuery,
    body=Json(RunCommand),
    answer=AnsweredOrEvents(
        model=ExecResult,
        words="How it ended; or, streamed: `started`, `stdout` and `stderr`, then `exit` or `error`.",
    ),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.exec"),
)

OPERATIONS: tuple[AnyOperation, ...] = (RUN_COMMAND,)
