"""What clients of E2B can ask for, under paths of ours that the edge makes of theirs.

The operations are declared as all others are, so that the same authentication, scopes, limits and audit hold.
They are in a table of their own: clients, documents and verbs of ours are not made of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from sandboxer.wire.e2b import ROOT, control, envd
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    Access,
    Answered,
    AnyOperation,
    Bytes,
    Events,
    Group,
    Idempotency,
    Nothing,
    Operation,
    Parameters,
    Scope,
    Stream,
    created,
    needs,
)
from sandboxer.wire.operations.sandboxes import SandboxPath

_ALL = Group(noun="e2b", path=ROOT, needs=needs(Scope.SANDBOXES_CREATE), reads=needs(Scope.SANDBOXES_READ))
_ONE = replace(_ALL, needs=needs(Scope.SANDBOXES_MANAGE), patience_s=180.0, failures=(409,)).below(
    "/sandboxes/{sandbox_id}", SandboxPath, audited="sandbox"
)
_ONE_V2 = replace(_ONE, path=f"{ROOT}/v2/sandboxes/{{sandbox_id}}")


class ListQuery(Parameters):
    metadata: Annotated[str, Field(max_length=8192)] = ""
    state: Annotated[str, Field(max_length=64)] = ""
    order: Literal["asc", "desc"] = "desc"
    started_after: Annotated[AwareDatetime | None, Field(alias="startedAfter")] = None
    template: str | None = None
    next_token: Annotated[str | None, Field(alias="nextToken", max_length=512)] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class MetricsQuery(Parameters):
    start: int | None = None
    end: int | None = None


class ContextPath(SandboxPath):
    context_id: Annotated[str, Field(max_length=64)]


class FilesQuery(Parameters):
    path: str | None = None
    username: str | None = None
    signature: str | None = None
    signature_expiration: int | None = None


class FileQuery(FilesQuery):
    path: str


CREATE = _ALL.operation(
    "e2bCreate",
    "POST /sandboxes",
    "Make a sandbox",
    created(control.Sandbox),
    body=control.NewSandbox,
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409),
)
CREATE_V2 = replace(CREATE, id="e2bCreateV2", path=f"{ROOT}/v2/sandboxes")
LIST = _ALL.operation(
    "e2bList", "GET /v2/sandboxes", "List sandboxes", control.ListedSandbox, query=ListQuery
)
LIST_V1 = replace(LIST, id="e2bListV1", path=f"{ROOT}/sandboxes")
GET = _ONE.operation("e2bGet", "GET", "Look at a sandbox", control.SandboxDetail)
KILL = _ONE.operation(
    "e2bKill",
    "DELETE",
    "Remove a sandbox",
    Nothing(),
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    failures=(428, 502),
)
SET_TIMEOUT = _ONE.operation(
    "e2bSetTimeout", "POST /timeout", "Say when it ends", Nothing(), body=control.Timeout, failures=(402,)
)
REFRESH = _ONE.operation("e2bRefresh", "POST /refreshes", "Let it live longer", Nothing(), failures=(402,))
CONNECT = _ONE.operation(
    "e2bConnect",
    "POST /connect",
    "Resume it if it is paused, and get its token",
    Answered(model=control.Sandbox, also=((201, "It was paused, and was resumed."),)),
    body=control.Connect,
    failures=(402,),
)
CONNECT_V2 = replace(CONNECT, id="e2bConnectV2", path=f"{_ONE_V2.path}/connect")
PAUSE = _ONE.operation("e2bPause", "POST /pause", "End its processes, keep its files", Nothing())
RESUME = _ONE.operation(
    "e2bResume",
    "POST /resume",
    "Start it again",
    created(control.Sandbox),
    body=control.Connect,
    failures=(402,),
)
METRICS = _ONE.operation("e2bMetrics", "GET /metrics", "What it uses", control.Metric, query=MetricsQuery)
LOGS = _ONE_V2.operation("e2bLogs", "GET /logs", "What happened to it", control.Logs)

_ENVD = replace(_ONE, access=Access.SANDBOX, path=f"{_ONE.path}/envd", needs=needs(Scope.EXEC), reads=None)
_STREAM = Events(words="Messages in envelopes, as long as there are any.")
START = _ENVD.operation("envdStart", "POST /process.Process/Start", "Run a command", _STREAM)
ATTACH = _ENVD.operation("envdConnect", "POST /process.Process/Connect", "Follow a command", _STREAM)
PROCESSES = _ENVD.operation(
    "envdList", "POST /process.Process/List", "List what runs", envd.ProcessList, body=envd.Empty
)
INPUT = _ENVD.operation(
    "envdSendInput", "POST /process.Process/SendInput", "Write to stdin", envd.Empty, body=envd.SendInput
)
STREAM_INPUT = _ENVD.operation(
    "envdStreamInput",
    "POST /process.Process/StreamInput",
    "Write to stdin, as it comes",
    Bytes(media_type="application/connect+json", words="An empty message, once all was read."),
    body=Stream("application/connect+json"),
)
CLOSE_STDIN = _ENVD.operation(
    "envdCloseStdin", "POST /process.Process/CloseStdin", "End stdin", envd.Empty, body=envd.Selected
)
SIGNAL = _ENVD.operation(
    "envdSendSignal", "POST /process.Process/SendSignal", "Send a signal", envd.Empty, body=envd.SendSignal
)
UPDATE = _ENVD.operation(
    "envdUpdate", "POST /process.Process/Update", "Resize a terminal", envd.Empty, body=envd.UpdateProcess
)
HEALTH = _ENVD.operation("envdHealth", "GET /health", "Whether it runs", Nothing(), needs=ANY_KEY)
ENVD_METRICS = _ENVD.operation(
    "envdMetrics", "GET /metrics", "What it uses", envd.Usage, needs=needs(Scope.SANDBOXES_READ)
)
ENVS = _ENVD.operation("envdEnvs", "GET /envs", "The environment of its commands", envd.Envs)
INIT = _ENVD.operation("envdInit", "POST /init", "Begin, as it has already", Nothing(), body=envd.Init)

_READS = replace(_ENVD, needs=needs(Scope.FILES_READ))
_WRITES = replace(_ENVD, needs=needs(Scope.FILES_WRITE))
_IN = "POST /filesystem.Filesystem/"
STAT = _READS.operation("envdStat", _IN + "Stat", "Look at a path", envd.OneEntry, body=envd.Named)
LIST_DIR = _READS.operation(
    "envdListDir", _IN + "ListDir", "List a folder", envd.Entries, body=envd.ListFolder
)
MAKE_DIR = _WRITES.operation("envdMakeDir", _IN + "MakeDir", "Make a folder", envd.OneEntry, body=envd.Named)
MOVE = _WRITES.operation("envdMove", _IN + "Move", "Rename a path", envd.OneEntry, body=envd.MovePath)
REMOVE = _WRITES.operation("envdRemove", _IN + "Remove", "Remove a path", envd.Empty, body=envd.Named)
WATCH_DIR = _READS.operation("envdWatchDir", _IN + "WatchDir", "Follow a folder", _STREAM)
CREATE_WATCHER = _READS.operation(
    "envdCreateWatcher",
    _IN + "CreateWatcher",
    "Gather changes of a folder",
    envd.OpenWatcher,
    body=envd.WatchFolder,
)
WATCHER_EVENTS = _READS.operation(
    "envdGetWatcherEvents",
    _IN + "GetWatcherEvents",
    "What has changed since",
    envd.Changes,
    body=envd.Watcher,
)
REMOVE_WATCHER = _READS.operation(
    "envdRemoveWatcher", _IN + "RemoveWatcher", "Gather no more", envd.Empty, body=envd.Watcher
)
# A link to a file opens that file and nothing else: no other operation takes one.
READ_FILE = replace(_READS, access=Access.FILE).operation(
    "envdReadFile",
    "GET /files",
    "Download a file",
    Bytes(media_type="application/octet-stream", words="The content."),
    query=FileQuery,
)
WRITE_FILES = replace(_WRITES, access=Access.FILE).operation(
    "envdWriteFiles",
    "POST /files",
    "Upload files",
    envd.Written,
    query=FilesQuery,
    body=Stream("multipart/form-data"),
)

# The code interpreter, which E2B's clients call at another port of the sandbox.
_CODE = replace(_ENVD, access=Access.TRAFFIC)
EXECUTE = _CODE.operation("e2bExecute", "POST /execute", "Run code", _STREAM, body=envd.Execute)
CONTEXTS = _CODE.operation("e2bContexts", "GET /contexts", "List contexts", envd.Context)
CREATE_CONTEXT = _CODE.operation(
    "e2bCreateContext", "POST /contexts", "Make a context", created(envd.Context), body=envd.NewContext
)
_CONTEXT = _CODE.below("/contexts/{context_id}", ContextPath)
END_CONTEXT = _CONTEXT.operation("e2bEndContext", "DELETE", "End a context", Nothing())
RESTART_CONTEXT = _CONTEXT.operation("e2bRestartContext", "POST /restart", "Begin anew", Nothing())

OPERATIONS: tuple[AnyOperation, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Operation)
)
