"""The operations on commands, background processes and terminals."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Events,
    Idempotency,
    InHeader,
    Json,
    Nothing,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    Upgrade,
    needs,
)
from sandboxer.wire.operations.paths import ProcessPath, SandboxPath, TerminalPath
from sandboxer.wire.processes import (
    ExecResult,
    Process,
    ProcessId,
    ProcessList,
    RunCommand,
    SendSignal,
    ShellCommand,
    StartProcess,
    StdinWritten,
    TerminalList,
    WriteStdin,
)
from sandboxer.wire.words import AbsolutePath, Encoding, User

MAX_WAIT_S = 3600.0
START_PROCESS = Operation(
    id="startProcess",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/processes",
    noun="processes",
    summary="Start a process that runs on",
    parameters=SandboxPath,
    body=Json(StartProcess),
    answer=Answered(model=Process, status=201),
    needs=needs(Scope.EXEC),
    idempotency=Idempotency.PLAIN,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes"),
)
LIST_PROCESSES = Operation(
    id="listProcesses",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes",
    noun="processes",
    summary="List background processes, oldest first",
    parameters=SandboxPath,
    answer=Answered(model=ProcessList),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes"),
)
GET_PROCESS = Operation(
    id="getProcess",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}",
    noun="processes",
    summary="Look at a process",
    parameters=ProcessPath,
    answer=Answered(model=Process),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes"),
)
WRITE_STDIN = Operation(
    id="writeStdin",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin",
    noun="processes",
    summary="Write to its stdin",
    parameters=ProcessPath,
    body=Json(WriteStdin),
    answer=Answered(model=StdinWritten),
    needs=needs(Scope.EXEC),
    patience_s=3600.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes.stdin"),
)
CLOSE_STDIN = Operation(
    id="closeStdin",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin",
    noun="processes",
    summary="Close its stdin",
    parameters=ProcessPath,
    answer=Nothing(),
    needs=needs(Scope.EXEC),
    patience_s=3600.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes.stdin"),
)
SIGNAL_PROCESS = Operation(
    id="signalProcess",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/signal",
    noun="processes",
    summary="Send it a signal; ended already is success",
    parameters=ProcessPath,
    body=Json(SendSignal),
    answer=Nothing(),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes.signal"),
)
END_PROCESS = Operation(
    id="endProcess",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}",
    noun="processes",
    summary="Kill everything it started, and forget it",
    parameters=ProcessPath,
    answer=Nothing(),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes"),
)
LIST_TERMINALS = Operation(
    id="listTerminals",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/terminals",
    noun="terminals",
    summary="List terminals, oldest first",
    parameters=SandboxPath,
    answer=Answered(model=TerminalList),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.terminals"),
)
END_TERMINAL = Operation(
    id="endTerminal",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/terminals/{terminal_id}",
    noun="terminals",
    summary="Kill what runs in a terminal, and forget it",
    parameters=TerminalPath,
    answer=Nothing(),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.terminals"),
)
Cells = Annotated[int, Field(ge=1, le=1000)]


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
    needs=needs(Scope.EXEC),
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.exec"),
)


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


ATTACH_PROCESS = Operation(
    id="attachProcess",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/output",
    noun="processes",
    summary="Its output: what is kept, then what follows",
    parameters=ProcessPath,
    query=AttachProcessQuery,
    answer=Events(words="`stdout` and `stderr`, then `exit`, or `error`."),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes.output"),
)
WAIT_PROCESS = Operation(
    id="waitProcess",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/processes/{process_id}/wait",
    noun="processes",
    summary="Answer when it has ended, or when the time is over",
    parameters=ProcessPath,
    query=WaitProcessQuery,
    answer=Answered(model=Process),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.processes.wait"),
)


class OpenTerminalQuery(Parameters):
    terminal_id: Annotated[ProcessId | None, Field(description="One that is there, attached to again.")] = (
        None
    )
    cols: Cells = 80
    rows: Cells = 24
    command: ShellCommand | None = None
    cwd: AbsolutePath | None = None
    user: User | None = None


OPEN_TERMINAL = Operation(
    id="openTerminal",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/terminal",
    noun="terminals",
    summary="A terminal (WebSocket)",
    parameters=SandboxPath,
    query=OpenTerminalQuery,
    answer=Upgrade(words="The terminal, over WebSocket."),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 426, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.terminal"),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    RUN_COMMAND,
    START_PROCESS,
    LIST_PROCESSES,
    GET_PROCESS,
    ATTACH_PROCESS,
    WRITE_STDIN,
    CLOSE_STDIN,
    SIGNAL_PROCESS,
    WAIT_PROCESS,
    END_PROCESS,
    OPEN_TERMINAL,
    LIST_TERMINALS,
    END_TERMINAL,
)
