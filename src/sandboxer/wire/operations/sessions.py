"""The operations on sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    BodyScope,
    Idempotency,
    InHeader,
    Json,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import CellPath, SessionPath
from sandboxer.wire.sandboxes import Boost
from sandboxer.wire.sessions import (
    CELL_TIMEOUT_MAX_S,
    Cell,
    CellList,
    Interrupted,
    RunCell,
    Session,
    SessionPage,
    StartSession,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, Encoding, SandboxId


class ListSessionsQuery(Parameters):
    sandbox_id: SandboxId | None = None
    state: Annotated[
        Literal["starting", "ready", "died", "ended"] | None,
        Field(description="As recorded: busy and frozen ones are `ready`. Default: all but ended."),
    ] = None
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class GetCellQuery(Parameters):
    wait_s: Annotated[
        float,
        Field(ge=0, le=CELL_TIMEOUT_MAX_S, allow_inf_nan=False, description="Wait so long for its end."),
    ] = 0.0
    encoding: Encoding = "utf-8"
    last_event_id: Annotated[
        str | None,
        Field(pattern="^[0-9]{1,9}$", description="Streamed: go on after this event."),
        InHeader("last-event-id"),
    ] = None


RUN_CELL = Operation(
    id="runCell",
    method="POST",
    path="/v1/sessions/{session_id}/cells",
    noun="sessions",
    summary="Run code in it; what runs goes on when you leave",
    parameters=SessionPath,
    body=Json(RunCell),
    answer=AnsweredOrEvents(
        model=Cell, words="The cell; or, streamed: `cell`, `stdout`, `stderr` and `result`, then `done`."
    ),
    needs=needs(Scope.EXEC),
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.cells"),
)
START_SESSION = Operation(
    id="startSession",
    method="POST",
    path="/v1/sessions",
    noun="sessions",
    summary="Start an interpreter that keeps its state",
    body=Json(StartSession),
    answer=Answered(model=Session, status=201),
    needs=needs(
        Scope.EXEC,
        # Without a sandbox of the caller's, one is made for it.
        adds=(BodyScope(field="sandbox_id", scope=Scope.SANDBOXES_CREATE, is_given=False),),
    ),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409, 502),
)
LIST_SESSIONS = Operation(
    id="listSessions",
    method="GET",
    path="/v1/sessions",
    noun="sessions",
    summary="List sessions, newest first",
    query=ListSessionsQuery,
    answer=Answered(model=SessionPage),
    needs=needs(Scope.EXEC),
)
GET_SESSION = Operation(
    id="getSession",
    method="GET",
    path="/v1/sessions/{session_id}",
    noun="sessions",
    summary="Look at a session",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.EXEC),
    failures=(404,),
)
END_SESSION = Operation(
    id="endSession",
    method="DELETE",
    path="/v1/sessions/{session_id}",
    noun="sessions",
    summary="End it, and its sandbox if that was made for it; ended already is success",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.EXEC),
    is_repeatable=True,
    failures=(404, 409, 428, 502),
    operator_audit=OperatorAudit(thing="session", action="session.destroy"),
)
LIST_CELLS = Operation(
    id="listCells",
    method="GET",
    path="/v1/sessions/{session_id}/cells",
    noun="sessions",
    summary="List its cells that are still kept, oldest first",
    parameters=SessionPath,
    answer=Answered(model=CellList),
    needs=needs(Scope.EXEC),
    failures=(404,),
    operator_audit=OperatorAudit(thing="session", action="session.cells"),
)
GET_CELL = Operation(
    id="getCell",
    method="GET",
    path="/v1/sessions/{session_id}/cells/{n}",
    noun="sessions",
    summary="Look at a cell, wait for it, or follow it while it runs",
    parameters=CellPath,
    query=GetCellQuery,
    answer=AnsweredOrEvents(
        model=Cell, words="The cell; or, streamed: `cell`, `stdout`, `stderr` and `result`, then `done`."
    ),
    needs=needs(Scope.EXEC),
    failures=(404,),
    operator_audit=OperatorAudit(thing="session", action="session.cells"),
)
INTERRUPT_SESSION = Operation(
    id="interruptSession",
    method="POST",
    path="/v1/sessions/{session_id}/interrupt",
    noun="sessions",
    summary="Stop the running cell as Ctrl-C would; the state stays",
    parameters=SessionPath,
    answer=Answered(model=Interrupted),
    needs=needs(Scope.EXEC),
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.interrupt"),
)
RESTART_SESSION = Operation(
    id="restartSession",
    method="POST",
    path="/v1/sessions/{session_id}/restart",
    noun="sessions",
    summary="Start a fresh interpreter; what the old one knew is gone, files are not",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.EXEC),
    patience_s=180.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.restart"),
)
FREEZE_SESSION = Operation(
    id="freezeSession",
    method="POST",
    path="/v1/sessions/{session_id}/freeze",
    noun="sessions",
    summary="Pause its sandbox in memory",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.freeze"),
)
THAW_SESSION = Operation(
    id="thawSession",
    method="POST",
    path="/v1/sessions/{session_id}/thaw",
    noun="sessions",
    summary="Let its frozen sandbox go on",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.thaw"),
)
BOOST_SESSION = Operation(
    id="boostSession",
    method="POST",
    path="/v1/sessions/{session_id}/boost",
    noun="sessions",
    summary="More CPUs, and 2 GB of memory with each, at once",
    parameters=SessionPath,
    body=Json(Boost),
    answer=Answered(model=Session),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.boost"),
)
UNBOOST_SESSION = Operation(
    id="unboostSession",
    method="POST",
    path="/v1/sessions/{session_id}/unboost",
    noun="sessions",
    summary="Back to what it had; not boosted is success",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="session", action="session.unboost"),
)
LOCK_SESSION = Operation(
    id="lockSession",
    method="POST",
    path="/v1/sessions/{session_id}/lock",
    noun="sessions",
    summary="From now on ending its sandbox needs a second proof",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="session", action="session.lock"),
)
UNLOCK_SESSION = Operation(
    id="unlockSession",
    method="POST",
    path="/v1/sessions/{session_id}/unlock",
    noun="sessions",
    summary="Let it be ended by a request alone again",
    parameters=SessionPath,
    answer=Answered(model=Session),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="session", action="session.unlock"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    RUN_CELL,
    START_SESSION,
    LIST_SESSIONS,
    GET_SESSION,
    END_SESSION,
    LIST_CELLS,
    GET_CELL,
    INTERRUPT_SESSION,
    RESTART_SESSION,
    FREEZE_SESSION,
    THAW_SESSION,
    BOOST_SESSION,
    UNBOOST_SESSION,
    LOCK_SESSION,
    UNLOCK_SESSION,
)
