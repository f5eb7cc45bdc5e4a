"""Code run once in a sandbox of its own: the request, the whole answer, the pieces of a streamed answer.

Jobs: code that runs on after its request.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from sandboxer.wire.processes import Argument, OutputText
from sandboxer.wire.sandboxes import WHOLE_PROFILE_ID, ImageName, WantedVolumes
from sandboxer.wire.webhooks import WebhookUrl
from sandboxer.wire.words import (
    NO_NUL,
    Answer,
    Encoding,
    Env,
    Moment,
    Naming,
    Network,
    Request,
    Trust,
    id_field,
    ref_field,
)

TTL_DEFAULT_S = 60
TTL_MAX_S = 900
CODE_MAX = 8 * 1024 * 1024
OUTPUT_LIMIT_DEFAULT = 1024 * 1024
OUTPUT_LIMIT_MAX = 4 * 1024 * 1024
RelativePath = Annotated[
    str,
    Field(
        pattern=r"^[^\x00/][^\x00]*$",
        max_length=1024,
        description="Relative to the working folder, without `.` and `..` parts.",
        examples=["data/input.csv"],
    ),
]
ArtifactPattern = Annotated[
    str,
    Field(
        pattern=r"^[^\x00/][^\x00]*$",
        max_length=1024,
        description="A file of the working folder, or a pattern (`*`, `?`, `[…]`, `**` for any folders). "
        "A pattern brings only what the run made or changed.",
        examples=["plot.png", "**/*.csv"],
    ),
]
JobId = Annotated[str, id_field("job", "Id of a job.")]
JobRef = Annotated[str, ref_field("job", "job", name=""), Naming("job")]
JobState = Literal["queued", "running", "finished", "failed", "cancelled", "timed_out", "lost"]


class InputFile(Request):
    name: RelativePath
    content: Annotated[str, Field(max_length=12 * 1024 * 1024, description="Written as `encoding` says.")]
    encoding: Encoding = "utf-8"


class ExecuteCode(Request):
    """Code, and how to run it. Code, stdin and files together: at most 8 MiB."""

    code: Annotated[str, Field(max_length=CODE_MAX, examples=["print(6 * 7)"])]
    language: Annotated[
        Annotated[str, Field(min_length=1, max_length=60)] | None,
        Field(
            description="Name, alias or file extension (GET /v1/languages). Default: what the code's first "
            "line says (`#!/usr/bin/env python3`).",
            examples=["python"],
        ),
    ] = None
    argv: Annotated[
        list[Argument], Field(max_length=256, description="Words for the program.", default_factory=list)
    ]
    stdin: Annotated[
        Annotated[str, Field(max_length=CODE_MAX)] | None,
        Field(description="Given to the program, then closed. Without it the program reads an end at once."),
    ] = None
    stdin_encoding: Encoding = "utf-8"
    files: Annotated[
        list[InputFile],
        Field(
            max_length=256, description="Put into the working folder, beside the code.", default_factory=list
        ),
    ]
    env: Env = Field(default_factory=dict)
    trust: Trust | None = None
    network: Network | None = None
    ttl_s: Annotated[
        int,
        Field(ge=1, le=TTL_MAX_S, description="Seconds for compiling and running; then all is killed."),
    ] = TTL_DEFAULT_S
    vcpus: Annotated[float, Field(gt=0, le=1024, allow_inf_nan=False)] | None = None
    memory_mb: Annotated[int, Field(gt=0, le=2**31 - 1)] | None = None
    disk_mb: Annotated[int, Field(gt=0, le=2**31 - 1)] | None = None
    profile: Annotated[
        Annotated[str, Field(max_length=63, pattern=NO_NUL), WHOLE_PROFILE_ID] | None,
        Field(description="Recipe of the sandbox. Default: one that has the language."),
    ] = None
    image: Annotated[
        ImageName | None,
        Field(description="See GET /v1/images. Default: one that has the language."),
    ] = None
    volumes: WantedVolumes = Field(default_factory=list)
    artifacts: Annotated[
        list[ArtifactPattern],
        Field(max_length=32, description="Files to bring back.", default_factory=list),
    ]
    output_limit_bytes: Annotated[
        int,
        Field(
            ge=0, le=OUTPUT_LIMIT_MAX, description="Kept of stdout and of stderr, each; the rest is counted."
        ),
    ] = OUTPUT_LIMIT_DEFAULT
    encoding: Encoding = "utf-8"


class ExecuteLater(ExecuteCode):
    """The same, as a job."""

    webhook_url: Annotated[
        WebhookUrl | None,
        Field(
            description="Told when the job has ended, signed with the account's secret for such messages "
            "(POST /v1/webhooks/once/rotate-secret)."
        ),
    ] = None


class Compiled(Answer):
    """The compile step, for languages that have one."""

    exit_code: Annotated[int | None, Field(description="None while it runs.")] = None
    stdout: OutputText
    stderr: OutputText
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    timed_out: bool = False
    duration_ms: float | None = None


class Artifact(Answer):
    name: str
    size: int
    mode: int
    content: Annotated[str, Field(description="Base 64.")]


class LeftOut(Answer):
    """A file that was asked for and is not in the answer."""

    name: str
    why: str
    size: int | None = None


class Execution(Answer):
    """How it went. A failed compile has its exit code here too, and `reason` `compile_failed`."""

    language: str
    version: Annotated[
        str | None,
        Field(description="Of the language, as the image's package says it.", examples=["3.11.2-1+b1"]),
    ] = None
    sandbox_id: str | None = None
    exit_code: Annotated[
        int | None, Field(description="128 + signal when a signal ended it; None while it runs.")
    ] = None
    stdout: OutputText = ""
    stderr: OutputText = ""
    stdout_dropped: Annotated[int, Field(description="Bytes beyond the limit, or lost.")] = 0
    stderr_dropped: int = 0
    encoding: Encoding = "utf-8"
    timed_out: bool = False
    truncated: Annotated[bool, Field(description="Something of an output is missing.")] = False
    reason: Annotated[
        str | None,
        Field(
            description="Why it ended, when that was not its own doing.",
            examples=["compile_failed", "timed_out", "oom_killed", "disk_full", "pids_exhausted", "killed"],
        ),
    ] = None
    duration_ms: Annotated[float | None, Field(description="Of the program, without its compiling.")] = None
    total_ms: Annotated[
        float | None, Field(description="Of the whole request; the sandbox is removed after it.")
    ] = None
    compile: Compiled | None = None
    artifacts: list[Artifact] = Field(default_factory=list)
    left_out: list[LeftOut] = Field(default_factory=list)
    sats: Annotated[int, Field(description="What it has cost when this was said.")] = 0


class ExecutionBegan(Answer):
    """Event `placed` (the sandbox stands), `compiling` or `running`."""

    sandbox_id: str | None = None
    stage: Literal["compile", "run"] | None = None


class ExecutionOutput(Answer):
    """Event `stdout` or `stderr`."""

    stage: Literal["compile", "run"]
    data: OutputText
    dropped: int = 0


class JobProblem(Answer):
    """Why a job could not be started, or was lost."""

    code: str
    detail: str
    next_step: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)


class JobSummary(Answer):
    id: str
    state: Annotated[
        JobState,
        Field(
            description="`finished`: the program ended by itself, whatever its exit code. `failed`: it did "
            "not compile or could not be started. `lost`: its sandbox went away under it."
        ),
    ]
    reason: str
    language: str
    sandbox_id: str | None = None
    sats: int = 0
    webhook_url: str | None = None
    problem: JobProblem | None = None
    created_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = None


class Job(JobSummary):
    result: Annotated[
        Execution | None, Field(description="What there is of it so far; whole once it ended.")
    ] = None


class JobPage(Answer):
    jobs: list[JobSummary]
    next_cursor: str | None = None
