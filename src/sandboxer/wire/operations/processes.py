"""The operations on processes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    Events,
    InHeader,
    Json,
    NoParameters,
    Nothing,
    Operation,
    Parameters,
)
from sandboxer.wire.operations.paths import ProcessPath, SandboxPath
from sandboxer.wire.operations.terms import Access, Idempotency, RateClass, Scope, Visit, needs
from sandboxer.wire.processes import Process, ProcessList, SendSignal, StartProcess, StdinWritten, WriteStdin
from sandboxer.wire.words import Encoding

MAX_WAIT_S = 3600.0


class AttachProcessQuery(Parameters):
    after: Annotated[
        str | None,
        Field(
            pattern="^[0-9]{1,18}\\.[0-9]{1,18}$",
            description="Id of the last event seen: bytes of stdout, a dot, bytes of stderr.",
            examples=["4096.0"],
        ),
    ] = None
    encoding: Encoding = "utf-8"
    last_event_id: Annotated[
        str | None,
        Field(pattern="^[0-9]{1,18}\\.[0-9]{1,18}$", description="As `after`."),
        InHeader("last-event-id"),
    ] = None


class WaitProcessQuery(Parameters):
    timeout_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 30.0


START_PROCESS = Operation(
    id="startProcess",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/processes",
    noun="processes",
    summary="Start a process that runs on",
    parameters=SandboxPath,
    query=NoParameters,
    body=Json(StartProcess),
    answer=Answered(model=Process, status=201),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    idempotency=Idempotency.PLAIN,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes"),
)
LIST_PROCESSES = Operation(
    id="listProcesses",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes",
    noun="processes",
    summary="List background processes, oldest first",
    parameters=SandboxPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=ProcessList),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes"),
)
GET_PROCESS = Operation(
    id="getProcess",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}",
    noun="processes",
    summary="Look at a process",
    parameters=ProcessPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Process),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes"),
)
ATTACH_PROCESS = Operation(
    id="attachProcess",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/output",
    noun="processes",
    summary="Its output: what is kept, then what follows",
    parameters=ProcessPath,
    query=AttachProcessQuery,
    body=Empty(),
    answer=Events(words="`stdout` and `stderr`, then `exit`, or `error`."),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes.output"),
)
WRITE_STDIN = Operation(
    id="writeStdin",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin",
    noun="processes",
    summary="Write to its stdin",
    parameters=ProcessPath,
    query=NoParameters,
    body=Json(WriteStdin),
    answer=Answered(model=StdinWritten),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes.stdin"),
)
CLOSE_STDIN = Operation(
    id="closeStdin",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin",
    noun="processes",
    summary="Close its stdin",
    parameters=ProcessPath,
    query=NoParameters,
    body=Empty(),
    answer=Nothing(),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes.stdin"),
)
SIGNAL_PROCESS = Operation(
    id="signalProcess",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/signal",
    noun="processes",
    summary="Send it a signal; ended already is success",
    parameters=ProcessPath,
    query=NoParameters,
    body=Json(SendSignal),
    answer=Nothing(),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes.signal"),
)
WAIT_PROCESS = Operation(
    id="waitProcess",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/wait",
    noun="processes",
    summary="Answer when it has ended, or when the time is over",
    parameters=ProcessPath,
    query=WaitProcessQuery,
    body=Empty(),
    answer=Answered(model=Process),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes.wait"),
)
END_PROCESS = Operation(
    id="endProcess",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}",
    noun="processes",
    summary="Kill everything it started, and forget it",
    parameters=ProcessPath,
    query=NoParameters,
    body=Empty(),
    answer=Nothing(),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.processes"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    START_PROCESS,
    LIST_PROCESSES,
    GET_PROCESS,
    ATTACH_PROCESS,
    WRITE_STDIN,
    CLOSE_STDIN,
    SIGNAL_PROCESS,
    WAIT_PROCESS,
    END_PROCESS,
)
