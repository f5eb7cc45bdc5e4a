"""Sessions: interpreters that keep their state, and the cells that are run in them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sandboxer.wire.sandboxes import ImageName, ProfileId, WantedResources, WantedVolumes
from sandboxer.wire.words import (
    AbsolutePath,
    Answer,
    Cursor,
    Duration,
    Encoding,
    Env,
    Moment,
    Name,
    Naming,
    Network,
    Request,
    SandboxId,
    SandboxRef,
    Trust,
    id_field,
    ref_field,
)

CODE_MAX = 1024 * 1024
CELL_TIMEOUT_DEFAULT_S = 60.0
CELL_TIMEOUT_MAX_S = 3600.0

SessionId = Annotated[str, id_field("ses", "Id of a session.", max_length=None)]
SessionRef = Annotated[str, ref_field("ses", "session"), Naming("session")]
CellNumber = Annotated[int, Field(ge=1, le=2**31, description="Cells count from 1.")]
SessionState = Literal["starting", "ready", "busy", "frozen", "died", "ended"]
CellStatus = Literal["queued", "running", "ok", "error", "interrupted", "timed_out", "died", "cancelled"]


class StartSession(Request):
    """A language, and where: in a sandbox that is there, or in one of its own, made and ended with it."""

    language: Annotated[
        str,
        Field(
            min_length=1,
            max_length=60,
            description="A name, alias or extension of GET /v1/languages or /v1/shells.",
            examples=["python"],
        ),
    ]
    sandbox_id: Annotated[SandboxRef | None, Field(description="Default: a sandbox of its own.")] = None
    name: Annotated[Name | None, Field(description="For people; needs not be unique.")] = None
    profile: Annotated[ProfileId | None, Field(description="Of its own sandbox.")] = None
    image: Annotated[
        ImageName | None,
        Field(description="Of its own sandbox. Default: the smallest that has the language."),
    ] = None
    trust: Annotated[Trust | None, Field(description="Of its own sandbox.")] = None
    network: Annotated[Network | None, Field(description="Of its own sandbox: what it may reach.")] = None
    vcpus: Annotated[
        Annotated[int, Field(ge=1, le=256)] | None,
        Field(description="Of its own sandbox; each brings 2 GB of memory."),
    ] = None
    resources: Annotated[
        WantedResources | None, Field(description="Of its own sandbox; `vcpus` above wins.")
    ] = None
    volumes: WantedVolumes = Field(default_factory=list)
    env: Env = Field(default_factory=dict)
    cwd: Annotated[AbsolutePath | None, Field(description="Default: /workspace.")] = None
    ttl: Annotated[
        Duration | None, Field(description="Default 1h, at most 24h; each cell adds 15 minutes.")
    ] = None
    idle: Annotated[Duration | None, Field(description="How long it may go without a cell. Default 15m.")] = (
        None
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        own = (self.profile, self.image, self.trust, self.network, self.vcpus, self.resources)
        if self.sandbox_id is not None and (self.volumes or any(value is not None for value in own)):
            raise ValueError(
                "profile, image, network, vcpus, resources and volumes are for a sandbox of its own"
            )
        return self


class Session(Answer):
    id: SessionId
    name: str | None = None
    language: str
    state: SessionState
    reason: Annotated[str, Field(description="Why it is in this state.")]
    sandbox_id: SandboxId
    owns_sandbox: Annotated[bool, Field(description="Its sandbox ends with it.")]
    generation: Annotated[int, Field(description="How often an interpreter was started.")]
    cells: Annotated[int, Field(description="Number of its last cell.")]
    idle: Duration
    created_at: Moment
    expires_at: Moment
    last_active_at: Moment
    ended_at: Moment | None = None


class SessionPage(Answer):
    sessions: list[Session]
    next_cursor: Cursor | None = None


class RunCell(Request):
    code: Annotated[str, Field(max_length=CODE_MAX, pattern=r"^[^\x00]*$", examples=["x = 42"])]
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=CELL_TIMEOUT_MAX_S,
            allow_inf_nan=False,
            description="Then it is interrupted; the state stays.",
        ),
    ] = CELL_TIMEOUT_DEFAULT_S
    wait: Annotated[bool, Field(description="False: answer at once, and look later.")] = True
    encoding: Encoding = "utf-8"


class CellError(Answer):
    name: Annotated[str, Field(description="Its type; `session_died` if the interpreter went.")]
    message: str
    traceback: str = ""


class CellEnd(Answer):
    """How it stands, without what it printed."""

    n: CellNumber
    status: CellStatus
    error: CellError | None = None
    exit_code: Annotated[int | None, Field(description="Of a shell's last command.")] = None
    truncated: Annotated[bool, Field(description="It printed more than is kept (1 MiB a stream).")] = False
    asked_at: Moment
    began_at: Moment | None = None
    ended_at: Moment | None = None
    duration_ms: float | None = None


class Cell(CellEnd):
    code: str
    stdout: str
    stderr: str
    results: Annotated[
        list[dict[str, str]],
        Field(
            description="What it showed, each by media type; pictures in base 64.",
            examples=[[{"text/plain": "42"}]],
        ),
    ]
    encoding: Encoding = "utf-8"


class CellList(Answer):
    cells: list[CellEnd]


class CellOutput(Answer):
    """A piece of `stdout` or `stderr`."""

    data: str


class CellResult(Answer):
    """Something it showed, by media type; pictures in base 64."""

    data: dict[str, str]


class Interrupted(Answer):
    cell: Annotated[int | None, Field(description="The cell that was asked to stop; null if none ran.")]
