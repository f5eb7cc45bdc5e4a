"""What clients of E2B can ask for, under paths of ours that the edge makes of theirs.

The operations are declared as all others are, so that the same authentication, scopes, limits and audit hold.
They are in a table of their own: clients, documents and verbs of ours are not made of them.
"""

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
    WayOut,
    created,
    needs,
)
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.words import VolumeRef

_ALL = Group(
    noun="e2b",
    path=ROOT,
    needs=needs(Scope.SANDBOXES_CREATE),
    reads=needs(Scope.SANDBOXES_READ),
    # Their sandboxes are reached from outside.
    way_out=WayOut(),
)
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


class SnapshotsQuery(Parameters):
    sandbox_id: Annotated[str | None, Field(alias="sandboxID", max_length=64)] = None
    name: Annotated[str | None, Field(max_length=128)] = None
    next_token: Annotated[str | None, Field(alias="nextToken", max_length=512)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 100


class TemplatePath(Parameters):
    template_id: control.TemplateName


class VolumePath(Parameters):
    volume_id: VolumeRef


class ContentQuery(Parameters):
    path: Annotated[str, Field(min_length=1, max_length=4096)]


class ListContentQuery(ContentQuery):
    depth: Annotated[int, Field(ge=1, le=64)] = 1


class WriteContentQuery(ContentQuery):
    uid: Annotated[int | None, Field(ge=0, le=65535)] = None
    gid: Annotated[int | None, Field(ge=0, le=65535)] = None
    mode: Annotated[int | None, Field(ge=0, le=0o7777)] = None
    force: bool = False


class FilesPath(TemplatePath):
    files_hash: control.FilesHash


class BuildPath(TemplatePath):
    build_id: Annotated[str, Field(max_length=64)]


class StatusQuery(Parameters):
    logs_offset: Annotated[int, Field(alias="logsOffset", ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=100)] = 100


class UploadQuery(Parameters):
    # Moved to a header by the door.
    token: str | None = None


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

NETWORK = _ONE.operation(
    "e2bNetwork",
    "PUT /network",
    "Say what it reaches from now on",
    Nothing(),
    body=control.ChangeNetwork,
    needs=needs(Scope.ACCOUNT_MANAGE),
)
TAKE_SNAPSHOT = _ONE.operation(
    "e2bTakeSnapshot",
    "POST /snapshots",
    "Keep its files as they are now",
    created(control.SnapshotInfo),
    body=control.TakeSnapshot,
    idempotency=Idempotency.BOUND,
    failures=(402, 502),
)
FORK = _ONE.operation(
    "e2bFork",
    "POST /fork",
    "Make sandboxes whose files are as its own are now",
    created(control.Forked),
    body=control.Fork,
    needs=needs(Scope.SANDBOXES_CREATE, Scope.SANDBOXES_MANAGE),
    failures=(402, 502),
)
SNAPSHOTS = _ALL.operation(
    "e2bSnapshots", "GET /snapshots", "List snapshots", control.SnapshotInfo, query=SnapshotsQuery
)
_TEMPLATE = replace(_ALL, needs=needs(Scope.SANDBOXES_DESTROY), failures=(409,)).below(
    "/templates/{template_id}", TemplatePath, audited="snapshot"
)
REMOVE_TEMPLATE = _TEMPLATE.operation(
    "e2bRemoveTemplate",
    "DELETE",
    "Remove a snapshot or a template",
    Nothing(),
    is_repeatable=True,
    failures=(428,),
)
_MAKING = replace(_ALL, needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC), failures=(409, 413))
_MADE = replace(_MAKING, audited="image")
NEW_TEMPLATE = _MAKING.operation(
    "e2bNewTemplate",
    "POST /v3/templates",
    "Open the build of a template",
    Answered(model=control.TemplateRequested, status=202),
    body=control.NewTemplate,
)
_FILES = _MADE.below("/templates/{template_id}/files/{files_hash}", FilesPath)
ASK_UPLOAD = _FILES.operation(
    "e2bAskUpload",
    "GET",
    "Ask where to send files of a step",
    created(control.FileUpload),
    needs=_MAKING.needs,
)
UPLOAD = replace(_FILES, access=Access.SANDBOX).operation(
    "e2bUpload",
    "PUT",
    "Send files of a step",
    Nothing(),
    query=UploadQuery,
    body=Stream("application/x-tar"),
)
BUILD_TEMPLATE = _MADE.below("/v2/templates/{template_id}/builds/{build_id}", BuildPath).operation(
    "e2bBuildTemplate", "POST", "Begin a build", Nothing(status=202), body=control.BuildTemplate
)
BUILD_STATUS = _MADE.below("/templates/{template_id}/builds/{build_id}/status", BuildPath).operation(
    "e2bBuildStatus", "GET", "How far a build is", control.BuildState, query=StatusQuery
)
FIND_TEMPLATE = _MADE.below("/templates/aliases/{template_id}", TemplatePath).operation(
    "e2bFindTemplate",
    "GET",
    "Whether there is a template of this name",
    control.KnownTemplate,
    audited_as="find",
)
TEMPLATE_TAGS = _TEMPLATE.operation(
    "e2bTemplateTags", "GET /tags", "List the tags of a template", control.TemplateTag
)
TAG_TEMPLATE = _MAKING.operation(
    "e2bTagTemplate",
    "POST /templates/tags",
    "Give a build more tags",
    created(control.TaggedTemplate),
    body=control.TagTemplate,
    failures=(404,),
)
UNTAG_TEMPLATE = _MAKING.operation(
    "e2bUntagTemplate",
    "DELETE /templates/tags",
    "Take tags away from a template",
    Nothing(),
    body=control.UntagTemplate,
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(404,),
)

_VOLUME = replace(_ALL, needs=needs(Scope.SANDBOXES_MANAGE)).below(
    "/volumes/{volume_id}", VolumePath, audited="volume"
)
NEW_VOLUME = _ALL.operation(
    "e2bNewVolume",
    "POST /volumes",
    "Make a volume",
    created(control.VolumeAndToken),
    body=control.NewVolume,
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 409),
)
VOLUMES = _ALL.operation("e2bVolumes", "GET /volumes", "List volumes", control.VolumeInfo)
GET_VOLUME = _VOLUME.operation(
    "e2bGetVolume", "GET", "Look at a volume", control.VolumeAndToken, audited_as="show"
)
REMOVE_VOLUME = _VOLUME.operation(
    "e2bRemoveVolume",
    "DELETE",
    "Remove a volume",
    Nothing(),
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    patience_s=180.0,
    failures=(409, 428),
)
_CONTENT = replace(
    _VOLUME,
    path=f"{ROOT}/volumecontent/{{volume_id}}",
    access=Access.SANDBOX,
    needs=needs(Scope.FILES_WRITE),
    reads=needs(Scope.FILES_READ),
    patience_s=180.0,
    failures=(402, 404, 409, 502),
)
STAT_CONTENT = _CONTENT.operation(
    "e2bStatContent", "GET /path", "Look at a path of a volume", control.VolumeEntry, query=ContentQuery
)
CHANGE_CONTENT = _CONTENT.operation(
    "e2bChangeContent",
    "PATCH /path",
    "Change whose a path is",
    control.VolumeEntry,
    query=ContentQuery,
    body=control.Owned,
)
REMOVE_CONTENT = _CONTENT.operation(
    "e2bRemoveContent", "DELETE /path", "Remove a path", Nothing(), query=ContentQuery
)
LIST_CONTENT = _CONTENT.operation(
    "e2bListContent", "GET /dir", "List a folder of a volume", control.VolumeEntry, query=ListContentQuery
)
MAKE_CONTENT = _CONTENT.operation(
    "e2bMakeContent",
    "POST /dir",
    "Make a folder",
    created(control.VolumeEntry),
    query=WriteContentQuery,
)
READ_CONTENT = _CONTENT.operation(
    "e2bReadContent",
    "GET /file",
    "Download a file of a volume",
    Bytes(media_type="application/octet-stream", words="The content."),
    query=ContentQuery,
)
WRITE_CONTENT = _CONTENT.operation(
    "e2bWriteContent",
    "PUT /file",
    "Upload a file to a volume",
    created(control.VolumeEntry),
    query=WriteContentQuery,
    body=Stream("application/octet-stream"),
)

SECRETS = _ALL.operation("e2bSecrets", "GET /secrets", "List secrets, of which there are none", Nothing())
NEW_SECRET = _ALL.operation("e2bNewSecret", "POST /secrets", "Make a secret, which is refused", Nothing())

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
