"""The operations on code that is run: at once, as a job, or in a session that keeps its state."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.execute import (
    ExecuteCode,
    ExecuteLater,
    Execution,
    Job,
    JobPage,
    JobRef,
    JobState,
    JobSummary,
)
from sandboxer.wire.operations.declaration import (
    Answered,
    AnsweredOrEvents,
    BodyScope,
    Group,
    Idempotency,
    InHeader,
    Offer,
    Parameters,
    Scope,
    Tool,
    WayOut,
    created,
    needs,
)
from sandboxer.wire.sandboxes import Boost
from sandboxer.wire.sessions import (
    CELL_TIMEOUT_MAX_S,
    Cell,
    CellList,
    CellNumber,
    Interrupted,
    RunCell,
    Session,
    SessionPage,
    SessionRef,
    StartSession,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, Cursor, Encoding, PageLimit, SandboxRef


class SessionPath(Parameters):
    session_id: SessionRef


class CellPath(SessionPath):
    n: CellNumber


class JobPath(Parameters):
    job_id: JobRef


WAIT_MAX_S = 60.0


class ListJobsQuery(Parameters):
    state: JobState | None = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class GetJobQuery(Parameters):
    wait_s: Annotated[
        float, Field(ge=0, le=WAIT_MAX_S, description="Answer when it has ended, or after so long.")
    ] = 0.0
    encoding: Encoding = "utf-8"


class CancelJobQuery(Parameters):
    encoding: Encoding = "utf-8"


# What a model has no need to say: it reads and writes text.
_LEFT_OUT = ("stdin_encoding", "encoding", "output_limit_bytes")
_EXECUTE = Group(noun="execute", needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC), failures=(404, 409))
_JOBS = Group(noun="jobs", needs=needs(Scope.EXEC))
_JOB = _JOBS.below("/v1/jobs/{job_id}", JobPath, audited="job")
EXECUTE_CODE = _EXECUTE.operation(
    "executeCode",
    "POST /v1/execute",
    "Run code in a sandbox of its own, which is deleted afterwards",
    AnsweredOrEvents(
        model=Execution,
        words="How it ended; or, streamed: `placed`, `began`, `stdout` and `stderr`, then `done` or `error`.",
    ),
    body=ExecuteCode,
    idempotency=Idempotency.BOUND,
    failures=(402, 502),
    tools=(
        Tool(
            "execute",
            offer=Offer.CORE,
            leaves_out=_LEFT_OUT,
            summary="Run code in a new sandbox, which is deleted afterwards",
        ),
        Tool(
            "run",
            leaves_out=("language", *_LEFT_OUT),
            summary="Run code whose first line (#!) says its language, in a new sandbox",
        ),
    ),
)
EXECUTE_LATER = _EXECUTE.operation(
    "executeLater",
    "POST /v1/execute/async",
    "Queue code as a job",
    Answered(model=JobSummary, status=202),
    body=ExecuteLater,
    idempotency=Idempotency.BOUND,
    way_out=WayOut(fields=("webhook_url",)),
    tools=(
        Tool(
            "executeCodeAsync",
            leaves_out=("webhook_url", *_LEFT_OUT),
            summary="Queue code as a job; getJob shows what it printed",
        ),
        Tool(
            "runAsync",
            leaves_out=("language", "webhook_url", *_LEFT_OUT),
            summary="Queue code whose first line (#!) says its language, as a job",
        ),
    ),
)
LIST_JOBS = _JOBS.operation(
    "listJobs",
    "GET /v1/jobs",
    "List jobs, newest first",
    JobPage,
    query=ListJobsQuery,
    tools=(Tool(),),
)
GET_JOB = _JOB.operation(
    "getJob",
    "GET",
    "Show a job, and what it has printed so far",
    Job,
    query=GetJobQuery,
    audited_as="get",
    tools=(Tool(),),
)
CANCEL_JOB = _JOB.operation(
    "cancelJob",
    "DELETE",
    "Cancel a job: answers with what it had printed; one that has ended stays as it is",
    Job,
    query=CancelJobQuery,
    is_repeatable=True,
    failures=(409,),
    tools=(Tool("deleteJob"),),
)


class ListSessionsQuery(Parameters):
    sandbox_id: SandboxRef | None = None
    state: Annotated[
        Literal["starting", "ready", "died", "ended"] | None,
        Field(description="As recorded: busy and frozen ones are `ready`. Default: all but ended."),
    ] = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


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


_SESSIONS = Group(noun="sessions", needs=needs(Scope.EXEC))
_SESSION = _SESSIONS.below("/v1/sessions/{session_id}", SessionPath, audited="session")
# What is done with a session by what is done with its sandbox.
_ITS_SANDBOX = replace(_SESSION, needs=needs(Scope.SANDBOXES_MANAGE), failures=(404, 409))
_CELL = AnsweredOrEvents(
    model=Cell, words="The cell; or, streamed: `cell`, `stdout`, `stderr` and `result`, then `done`."
)
RUN_CELL = _SESSION.operation(
    "runCell",
    "POST /cells",
    "Run a cell in a session; it runs on when you disconnect",
    _CELL,
    body=RunCell,
    failures=(402, 409, 502),
    is_lossy=True,
    tools=(Tool("executeInSession", offer=Offer.CORE),),
)
START_SESSION = _SESSIONS.operation(
    "startSession",
    "POST /v1/sessions",
    "Start an interpreter that keeps its state",
    created(Session),
    body=StartSession,
    needs=needs(
        Scope.EXEC,
        # Without a sandbox of the caller's, one is made for it.
        adds=(BodyScope(field="sandbox_id", scope=Scope.SANDBOXES_CREATE, is_given=False),),
    ),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409, 502),
    tools=(Tool("createSession", offer=Offer.CORE),),
)
LIST_SESSIONS = _SESSIONS.operation(
    "listSessions",
    "GET /v1/sessions",
    "List sessions, newest first",
    SessionPage,
    query=ListSessionsQuery,
    tools=(Tool(),),
)
GET_SESSION = _SESSION.operation(
    "getSession",
    "GET",
    "Show a session",
    Session,
    tools=(Tool(),),
)
END_SESSION = _SESSION.operation(
    "endSession",
    "DELETE",
    "End a session, and its sandbox if that was made for it; ended already is success",
    Session,
    is_repeatable=True,
    failures=(409, 428, 502),
    tools=(Tool("deleteSession"),),
)
LIST_CELLS = _SESSION.operation(
    "listCells", "GET /cells", "List a session's cells that are still kept, oldest first", CellList
)
GET_CELL = _SESSION.below("/cells/{n}", CellPath).operation(
    "getCell",
    "GET",
    "Show a cell, wait for it, or follow it while it runs",
    _CELL,
    query=GetCellQuery,
)
INTERRUPT_SESSION = _SESSION.operation(
    "interruptSession",
    "POST /interrupt",
    "Stop the running cell as Ctrl-C would; the state stays",
    Interrupted,
    failures=(402, 409, 502),
)
RESTART_SESSION = _SESSION.operation(
    "restartSession",
    "POST /restart",
    "Start a fresh interpreter: variables are lost, files are not",
    Session,
    patience_s=180.0,
    failures=(409, 502),
    is_lossy=True,
)
FREEZE_SESSION = _ITS_SANDBOX.operation(
    "freezeSession",
    "POST /freeze",
    "Freeze a session: its sandbox is paused in memory",
    Session,
    patience_s=180.0,
    failures=(502,),
    tools=(Tool(),),
)
THAW_SESSION = _ITS_SANDBOX.operation(
    "thawSession",
    "POST /thaw",
    "Let a frozen session go on",
    Session,
    patience_s=180.0,
    failures=(402, 502),
    tools=(Tool("unfreezeSession"),),
)
BOOST_SESSION = _ITS_SANDBOX.operation(
    "boostSession",
    "POST /boost",
    "Give a session more CPUs, and 2 GB of memory with each, at once",
    Session,
    body=Boost,
    failures=(402, 502),
)
UNBOOST_SESSION = _ITS_SANDBOX.operation(
    "unboostSession",
    "POST /unboost",
    "Take back what a boost gave a session; not boosted is success",
    Session,
    patience_s=180.0,
    failures=(502,),
)
LOCK_SESSION = _ITS_SANDBOX.operation(
    "lockSession",
    "POST /lock",
    "Lock a session: ending its sandbox then needs a second proof",
    Session,
    patience_s=180.0,
    tools=(Tool(),),
)
UNLOCK_SESSION = _ITS_SANDBOX.operation(
    "unlockSession",
    "POST /unlock",
    "Unlock a session",
    Session,
    patience_s=180.0,
    failures=(428,),
    tools=(Tool(),),
)
