"""The operations on what is inside a sandbox: commands, background processes, terminals and files."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.files import (
    FileInfo,
    FileMode,
    FilePage,
    MakeDirectory,
    MoveFile,
    RemoveFile,
    TarUnpacked,
)
from sandboxer.wire.operations.declaration import (
    AnsweredOrEvents,
    Bytes,
    Events,
    Idempotency,
    InHeader,
    Nothing,
    Offer,
    Parameters,
    Scope,
    Stream,
    Through,
    Tool,
    Upgrade,
    created,
    needs,
)
from sandboxer.wire.operations.sandboxes import SANDBOX, SandboxPath
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
from sandboxer.wire.words import MAX_PATH_BYTES, PAGE_LIMIT_MAX, AbsolutePath, Cursor, Encoding, User


class ProcessPath(SandboxPath):
    process_id: ProcessId


class TerminalPath(SandboxPath):
    terminal_id: ProcessId


MAX_WAIT_S = 3600.0
Cells = Annotated[int, Field(ge=1, le=1000)]


class RunCommandQuery(Parameters):
    is_streamed: Annotated[
        bool,
        Field(alias="stream", description="Server-sent events, as `Accept: text/event-stream` asks for."),
    ] = False


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
    follow: Annotated[bool, Field(description="False: end after what is there, without `exit`.")] = True
    last_event_id: Annotated[
        str | None,
        Field(pattern="^[0-9]{1,18}\\.[0-9]{1,18}$", description="As `after`."),
        InHeader("last-event-id"),
    ] = None


class WaitProcessQuery(Parameters):
    timeout_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 30.0


class OpenTerminalQuery(Parameters):
    terminal_id: Annotated[ProcessId | None, Field(description="One that is there, attached to again.")] = (
        None
    )
    cols: Cells = 80
    rows: Cells = 24
    command: ShellCommand | None = None
    cwd: AbsolutePath | None = None
    user: User | None = None


# A model reads and writes text, and its program is told of progress another way.
_LEFT_OUT = ("is_streamed", "trace", "stdin_encoding", "encoding", "output_limit_bytes")
_EXEC = replace(SANDBOX, noun="exec", needs=needs(Scope.EXEC), reads=None, failures=(404, 409, 502))
_PROCESSES = replace(_EXEC, noun="processes")
_PROCESS = _PROCESSES.below("/processes/{process_id}", ProcessPath)
_TERMINALS = replace(_EXEC, noun="terminals")
RUN_COMMAND = _EXEC.operation(
    "runCommand",
    "POST /exec",
    "Run a command to its end",
    AnsweredOrEvents(
        model=ExecResult,
        words="How it ended; or, streamed: `started`, `stdout` and `stderr`, then `exit` or `error`.",
    ),
    query=RunCommandQuery,
    body=RunCommand,
    failures=(402,),
    is_lossy=True,
    tools=(
        Tool(offer=Offer.CORE, leaves_out=_LEFT_OUT, summary="Run a command in a sandbox to its end"),
        Tool(
            "executeInService",
            leaves_out=_LEFT_OUT,
            through=Through(operation="getService", finds="sandbox_id"),
            summary="Run a command in a service's sandbox to its end",
        ),
    ),
)
START_PROCESS = _PROCESSES.operation(
    "startProcess",
    "POST /processes",
    "Start a process in the background",
    created(Process),
    body=StartProcess,
    idempotency=Idempotency.PLAIN,
    tools=(Tool(),),
)
LIST_PROCESSES = _PROCESSES.operation(
    "listProcesses",
    "GET /processes",
    "List background processes, oldest first",
    ProcessList,
    tools=(Tool(),),
)
GET_PROCESS = _PROCESS.operation(
    "getProcess",
    "GET",
    "Show a process",
    Process,
    tools=(Tool(),),
)
ATTACH_PROCESS = _PROCESS.operation(
    "attachProcess",
    "GET /output",
    "Follow a process's output: what is kept, then what comes",
    Events(words="`stdout` and `stderr`, then `exit`, or `error`."),
    query=AttachProcessQuery,
)
WRITE_STDIN = _PROCESS.operation(
    "writeStdin",
    "POST /stdin",
    "Write to a process's stdin",
    StdinWritten,
    body=WriteStdin,
    patience_s=3600.0,
)
CLOSE_STDIN = _PROCESS.operation(
    "closeStdin", "DELETE /stdin", "Close a process's stdin", Nothing(), patience_s=3600.0
)
SIGNAL_PROCESS = _PROCESS.operation(
    "signalProcess",
    "POST /signal",
    "Send a process a signal; ended already is success",
    Nothing(),
    body=SendSignal,
    is_lossy=True,
)
WAIT_PROCESS = _PROCESS.operation(
    "waitProcess",
    "GET /wait",
    "Wait for a process to end, or for the time to be over",
    Process,
    query=WaitProcessQuery,
    tools=(Tool(),),
)
END_PROCESS = _PROCESS.operation(
    "endProcess",
    "DELETE",
    "Kill a process and everything it started, and forget it",
    Nothing(),
    tools=(Tool(),),
)
OPEN_TERMINAL = _TERMINALS.operation(
    "openTerminal",
    "GET /terminal",
    "Open a terminal (WebSocket)",
    Upgrade(words="The terminal, over WebSocket."),
    query=OpenTerminalQuery,
    failures=(426,),
)
LIST_TERMINALS = _TERMINALS.operation(
    "listTerminals", "GET /terminals", "List terminals, oldest first", TerminalList
)
END_TERMINAL = _TERMINALS.below("/terminals/{terminal_id}", TerminalPath).operation(
    "endTerminal", "DELETE", "End a terminal and what runs in it", Nothing()
)
QueryPath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_PATH_BYTES - 1,
        pattern="^/[^\\x00]*$",
        description="Absolute path; any bytes but NUL, percent-encoded.",
        examples=["/workspace/main.py"],
    ),
]


class FileQuery(Parameters):
    path: QueryPath


class ReadFileQuery(FileQuery):
    range: Annotated[
        str | None, Field(max_length=200, description="One range, as `bytes=0-99`."), InHeader("range")
    ] = None


class WriteFileQuery(FileQuery):
    mode: Annotated[FileMode | None, Field(description="Permission bits, as a decimal number.")] = None
    parents: Annotated[bool, Field(description="Make missing folders.")] = True


class DeleteFileQuery(FileQuery):
    recursive: Annotated[bool, Field(description="Also a folder with content.")] = False


class ListFilesQuery(FileQuery):
    depth: Annotated[int, Field(ge=1, le=64, description="1: the folder itself.")] = 1
    cursor: Annotated[Cursor | None, Field(max_length=8192, pattern="^[A-Za-z0-9_-]{1,8192}$")] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX * 10)] = PAGE_LIMIT_MAX


class StatFileQuery(FileQuery):
    follow: Annotated[bool, Field(description="False: of a link itself.")] = True


class WatchFilesQuery(FileQuery):
    recursive: Annotated[bool, Field(description="Also in folders below.")] = False


_FILES = replace(
    SANDBOX,
    noun="files",
    path=f"{SANDBOX.path}/files",
    needs=needs(Scope.FILES_WRITE),
    reads=needs(Scope.FILES_READ),
    failures=(404, 409, 502),
)
READ_FILE = _FILES.operation(
    "readFile",
    "GET /content",
    "Read a file, or a part of it",
    Bytes(
        media_type="application/octet-stream", words="The file.", part_words="The part that was asked for."
    ),
    query=ReadFileQuery,
    failures=(416,),
    tools=(Tool(offer=Offer.CORE),),
)
HEAD_FILE = _FILES.operation(
    "headFile",
    "HEAD /content",
    "Ask for the size of a file",
    Nothing(status=200, words="Size and time of the file, in headers."),
    query=FileQuery,
)
WRITE_FILE = _FILES.operation(
    "writeFile",
    "PUT /content",
    "Write a file; it is replaced only when the whole body arrived",
    FileInfo,
    query=WriteFileQuery,
    body=Stream("application/octet-stream"),
    tools=(Tool(offer=Offer.CORE),),
)
DELETE_FILE = _FILES.operation(
    "deleteFile", "DELETE /content", "Remove a file or folder", Nothing(), query=DeleteFileQuery
)
LIST_FILES = _FILES.operation(
    "listFiles",
    "GET",
    "List a folder, by path",
    FilePage,
    query=ListFilesQuery,
    tools=(Tool(offer=Offer.CORE),),
)
STAT_FILE = _FILES.operation(
    "statFile", "GET /stat", "Show a file, folder or link", FileInfo, query=StatFileQuery
)
MAKE_DIRECTORY = _FILES.operation(
    "makeDirectory",
    "POST /mkdir",
    "Make a folder",
    Nothing(),
    body=MakeDirectory,
    tools=(Tool(),),
)
MOVE_FILE = _FILES.operation(
    "moveFile",
    "POST /move",
    "Move or rename a file or folder",
    Nothing(),
    body=MoveFile,
    tools=(Tool(),),
)
REMOVE_FILE = _FILES.operation(
    "removeFile",
    "POST /remove",
    "Remove a file or folder",
    Nothing(),
    body=RemoveFile,
    is_lossy=True,
    tools=(Tool(),),
)
WATCH_FILES = _FILES.operation(
    "watchFiles",
    "GET /watch",
    "Follow changes in a folder",
    Events(words="`ready`, then a `change` for each change, or `error`."),
    query=WatchFilesQuery,
)
PACK_FOLDER = _FILES.operation(
    "packFolder",
    "GET /tar",
    "Download a folder as tar",
    Bytes(media_type="application/x-tar", words="A tar of the folder's content, or of the one file."),
    query=FileQuery,
)
UNPACK_FOLDER = _FILES.operation(
    "unpackFolder",
    "PUT /tar",
    "Unpack a tar into a folder, once all of it arrived",
    TarUnpacked,
    query=FileQuery,
    body=Stream("application/x-tar"),
)
