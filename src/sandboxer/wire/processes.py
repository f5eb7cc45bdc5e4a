"""Background processes: started by one request, looked after by others, alive between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.exec import STDIN_MAX, TIMEOUT_MAX_S, Runnable
from sandboxer.wire.words import Answer, Encoding, Moment, Request

ProcessId = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", max_length=64, examples=["prc_0123456789abcdefghjkmnpqrs"]),
]
SignalName = Literal[
    "HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP", "WINCH", "ABRT", "ALRM"
]


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
