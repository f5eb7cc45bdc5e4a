"""Processes in a sandbox: commands run to their end, background processes, and terminals.

Of a command there are the request, the whole answer, and the pieces of a streamed answer. A background
process is started by one request, looked after by others, and alive between them. Over a terminal's WebSocket
binary frames are bytes of the terminal, text frames are these, as JSON.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sandboxer.wire.words import NO_NUL, AbsolutePath, Answer, Encoding, Env, Moment, Problem, Request, User

OUTPUT_LIMIT_DEFAULT = 1024 * 1024
OUTPUT_LIMIT_MAX = 64 * 1024 * 1024
TIMEOUT_DEFAULT_S = 600.0
TIMEOUT_MAX_S = 86_400.0
STDIN_MAX = 8 * 1024 * 1024
Argument = Annotated[str, Field(pattern=NO_NUL, max_length=131_071)]
ShellCommand = Annotated[
    str,
    Field(
        min_length=1,
        max_length=131_071,
        pattern=NO_NUL,
        description="Run by bash (sh if there is none), not as a login shell: profile files are not read.",
        examples=["echo hi"],
    ),
]
Argv = Annotated[
    list[Argument],
    Field(min_length=1, max_length=4096, description="Run without a shell.", examples=[["echo", "hi"]]),
]
OutputText = Annotated[str, Field(description="Written as `encoding` says.")]
ProcessId = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", max_length=64, examples=["prc_0123456789abcdefghjkmnpqrs"]),
]
SignalName = Literal[
    "HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP", "WINCH", "ABRT", "ALRM"
]
Cells = Annotated[int, Field(ge=1, le=1000)]


class Runnable(Request):
    """What every command has."""

    command: Annotated[
        ShellCommand | None, Field(description="Run by bash (sh if there is none), not as a login shell.")
    ] = None
    argv: Annotated[Argv | None, Field(description="Run without a shell.")] = None
    cwd: Annotated[AbsolutePath | None, Field(description="Default: /workspace if there is one, else /.")] = (
        None
    )
    env: Env = Field(default_factory=dict)
    user: Annotated[User | None, Field(description="Name or uid known inside; default root.")] = None
    trace: Annotated[
        bool,
        Field(
            description="Give it `TRACEPARENT` and answer with `traceparent`, even if the request has none."
        ),
    ] = False

    @model_validator(mode="after")
    def _one_of_command_and_argv(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise ValueError("give exactly one of `command` and `argv`")
        return self


class RunCommand(Runnable):
    """`command` (for a shell) or `argv` (without one), exactly one of both."""

    stdin: Annotated[
        Annotated[str, Field(max_length=STDIN_MAX)] | None,
        Field(description="Given to the command, then closed."),
    ] = None
    stdin_encoding: Encoding = "utf-8"
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=TIMEOUT_MAX_S,
            allow_inf_nan=False,
            description="After this, everything the command started is killed and `timed_out` is true.",
        ),
    ] = TIMEOUT_DEFAULT_S
    output_limit_bytes: Annotated[
        Annotated[int, Field(ge=0, le=OUTPUT_LIMIT_MAX)] | None,
        Field(
            description=(
                "Kept of stdout and of stderr, each; the rest is read and dropped, and `truncated` is "
                "true. Default 1 MiB; a streamed answer has no limit unless one is given."
            )
        ),
    ] = None
    encoding: Encoding = "utf-8"


class ExecResult(Answer):
    exit_code: Annotated[int, Field(description="As the command ended; 128 + signal when a signal ended it.")]
    stdout: OutputText
    stderr: OutputText
    timed_out: bool
    truncated: Annotated[bool, Field(description="stdout or stderr was longer than the limit.")]
    duration_ms: float
    reason: Annotated[
        str | None,
        Field(
            description="Why it ended, when that was not its own doing.",
            examples=["timed_out", "oom_killed", "disk_full", "pids_exhausted", "killed"],
        ),
    ] = None
    encoding: Encoding = "utf-8"
    stdin_bytes: Annotated[
        int | None,
        Field(description="Bytes of `stdin` that its pipe took; fewer than given: it read no more."),
    ] = None


class ExecStarted(Answer):
    """First event (`started`) of a streamed answer."""

    process_id: str
    pid: int


class ExecOutput(Answer):
    """Event `stdout` or `stderr` of a streamed answer."""

    data: OutputText
    dropped: Annotated[int, Field(description="Bytes lost just before this, because nobody read them.")] = 0
    offset: Annotated[int, Field(description="Bytes of this stream up to the end of this piece.")] = 0


class ExecExit(Answer):
    """Last event (`exit`) of a streamed answer. A broken stream ends with `error`, a problem, instead."""

    exit_code: int
    timed_out: bool
    truncated: bool
    duration_ms: Annotated[float | None, Field(description="Absent for a background process.")] = None
    reason: str | None = None
    stdin_bytes: Annotated[int | None, Field(description="Bytes of `stdin` that its pipe took.")] = None


class StartProcess(Runnable):
    """`command` (for a shell) or `argv` (without one), exactly one of both. Runs on after the answer."""

    has_stdin: Annotated[
        bool, Field(description="Keep a pipe to write to; otherwise stdin is /dev/null.")
    ] = False
    timeout_s: Annotated[
        Annotated[float, Field(gt=0, le=TIMEOUT_MAX_S * 30, allow_inf_nan=False)] | None,
        Field(description="After this, everything it started is killed. Default: no limit."),
    ] = None
    tag: Annotated[
        str,
        Field(
            max_length=256,
            pattern=r"^$|^[^@\x00-\x1f][^\x00-\x1f]*$",
            description="Words of your own, listed with the process.",
        ),
    ] = ""


class Process(Answer):
    process_id: ProcessId
    pid: Annotated[int, Field(description="As seen inside the sandbox.")]
    argv: list[str]
    tag: str = ""
    started_at: Moment
    has_terminal: bool
    running: bool
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    reason: str | None = None
    deadline: Annotated[Moment | None, Field(description="When it will be killed.")] = None
    stdin_bytes: Annotated[
        int | None,
        Field(description="Bytes that its stdin took so far; absent where an older sandbox does not say."),
    ] = None


class ProcessList(Answer):
    processes: list[Process]


class WriteStdin(Request):
    data: Annotated[str, Field(max_length=STDIN_MAX)]
    encoding: Encoding = "utf-8"
    close: Annotated[bool, Field(description="Close stdin afterwards.")] = False
    offset: Annotated[
        Annotated[int, Field(ge=0, le=1 << 62)] | None,
        Field(
            description=(
                "How many bytes were written before these. What its stdin took already is not written again: "
                "a write that was broken off can be repeated as it was."
            )
        ),
    ] = None


class StdinWritten(Answer):
    """All of it is in the process's pipe. When it took only a part, the answer is `stdin_not_taken`."""

    written_bytes: int
    closed: bool


class SendSignal(Request):
    signal: SignalName
    tree: Annotated[
        bool,
        Field(description="With KILL: end everything the process started, re-parented children included."),
    ] = False


class Resize(Request):
    """Client to server."""

    type: Literal["resize"]
    cols: Cells
    rows: Cells


class TerminalReady(Answer):
    """Server to client, once, before the first byte. `terminal_id` re-attaches later."""

    type: Literal["ready"] = "ready"
    terminal_id: ProcessId
    reattached: bool


class TerminalExit(Answer):
    """Server to client, once: the program ended. The server closes with 1000 after it."""

    type: Literal["exit"] = "exit"
    exit_code: int
    reason: str | None = None


class TerminalProblem(Answer):
    """Server to client, once: the terminal broke. The server closes with 1011 after it."""

    type: Literal["error"] = "error"
    problem: Problem


class Terminal(Answer):
    terminal_id: ProcessId
    argv: list[str]
    started_at: Moment
    running: bool
    exit_code: int | None = None


class TerminalList(Answer):
    terminals: list[Terminal]
