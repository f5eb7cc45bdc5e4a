"""Services: what a caller may ask for when making or changing one, and what the platform says about it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sandboxer.wire.previews import Exposure, Inspect
from sandboxer.wire.sandboxes import AttachedVolume, ImageName, ProfileId, WantedResources, WantedVolumes
from sandboxer.wire.words import (
    NO_NUL,
    AbsolutePath,
    Answer,
    Cursor,
    Duration,
    Encoding,
    Env,
    EnvName,
    EnvValue,
    Labels,
    Moment,
    Naming,
    Network,
    QuoteId,
    Request,
    SandboxId,
    SnapshotRef,
    Trust,
    User,
    ref_field,
)

MAX_BOOTSTRAP = 256 * 1024
MAX_FILE = 8 * 1024 * 1024
MAX_FILES = 256
LOG_TAIL_MAX = 10_000
_LABEL = r"[a-z](?:[a-z0-9-]{0,46}[a-z0-9])?"
_ID = r"svc_[0-9a-hjkmnp-tv-z]{26}"

ServiceState = Literal[
    "creating",
    "starting",
    "running",
    "unhealthy",
    "restarting",
    "sleeping",
    "stopped",
    "crash_looping",
    "failed",
    "removed",
]
ServiceName = Annotated[
    str,
    Field(
        pattern=rf"^{_LABEL}$",
        max_length=48,
        description="A DNS label, unique in the account.",
        examples=["hello"],
    ),
]
ServiceId = Annotated[
    str,
    Field(pattern=rf"^{_ID}$", description="Id of a service.", examples=["svc_0123456789abcdefghjkmnpqrs"]),
]
ServiceRef = Annotated[str, ref_field("svc", "service", name=_LABEL), Naming("service")]
DomainName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)+$",
        max_length=253,
        description="A domain of one's own, in ASCII.",
        examples=["app.example.com"],
    ),
]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Bootstrap = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_BOOTSTRAP,
        pattern=NO_NUL,
        description="A script; its first line may say who runs it (`#!/usr/bin/python3`), else a shell does.",
        examples=["#!/bin/sh\nexec python3 -m http.server $PORT\n"],
    ),
]
ShellCommand = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100_000,
        pattern=NO_NUL,
        description="Text for a shell, instead of a bootstrap script.",
        examples=["exec python3 -m http.server $PORT"],
    ),
]
Port = Annotated[int, Field(ge=1, le=65535)]
Policy = Literal["always", "on-failure", "never"]


class Health(Request):
    """How the platform tells that it is well."""

    path: Annotated[
        Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=1024)] | None,
        Field(description="A GET of this must be answered by 200 to 399. Left out: it takes connections."),
    ] = None
    interval_s: Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)] = 10.0
    timeout_s: Annotated[float, Field(ge=0.1, le=60, allow_inf_nan=False)] = 5.0
    threshold: Annotated[
        int, Field(ge=1, le=100, description="So many failures in a row make it unhealthy.")
    ] = 3
    start_timeout_s: Annotated[
        float,
        Field(
            ge=0.1, le=900, allow_inf_nan=False, description="How long a new process may take to get well."
        ),
    ] = 60.0


class Restart(Request):
    """What follows the end of its process."""

    policy: Policy = "always"
    backoff_s: Annotated[
        Seconds, Field(description="Pause before the first restart; doubled with every further one.")
    ] = 1.0
    backoff_max_s: Seconds = 60.0
    max_crashes: Annotated[
        int, Field(ge=1, le=1000, description="More ends than this within the window: `crash_looping`.")
    ] = 5
    window_s: Annotated[Seconds, Field(gt=0)] = 300.0


class ServiceFile(Request):
    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4095,
            pattern=NO_NUL,
            description="Where it is written; below /workspace unless it begins with /.",
            examples=["app.py"],
        ),
    ]
    content: Annotated[str, Field(max_length=MAX_FILE)]
    encoding: Encoding = "utf-8"
    mode: Annotated[Annotated[int, Field(ge=0, le=0o7777)] | None, Field(description="Permissions.")] = None


Files = Annotated[list[ServiceFile], Field(max_length=MAX_FILES, description="Written before it starts.")]


class CreateService(Request):
    """Exactly one of `bootstrap` and `command`."""

    name: ServiceName
    bootstrap: Bootstrap | None = None
    command: ShellCommand | None = None
    files: Files = Field(default_factory=list)
    cwd: AbsolutePath | None = None
    user: User | None = None
    env: Env = Field(default_factory=dict)
    secrets: Annotated[
        dict[EnvName, EnvValue],
        Field(max_length=256, description="Environment that is sealed at rest; only names are ever told."),
    ] = Field(default_factory=dict)
    port: Annotated[
        Port | None,
        Field(
            description="Where it listens, if that is fixed. Left out: it listens on $PORT, and a redeploy"
            " drops no request."
        ),
    ] = None
    health: Health = Field(default_factory=Health)
    restart: Restart = Field(default_factory=Restart)
    idle_s: Annotated[
        Seconds, Field(description="After so long without a request it sleeps (frozen); 0: never.")
    ] = 0.0
    wake: Annotated[bool, Field(description="A request wakes it.")] = True
    public: Annotated[bool, Field(description="Anyone may reach it; else only by a preview link.")] = False
    drain_s: Annotated[Seconds, Field(description="How long the old process goes on after a redeploy.")] = 2.0
    stop_timeout_s: Annotated[
        Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)],
        Field(description="How long it may take to end after SIGTERM, before it is killed."),
    ] = 10.0
    profile: Annotated[ProfileId | None, Field(description="Default: `profile.service`.")] = None
    image: ImageName | None = None
    trust: Trust | None = None
    network: Network | None = None
    ttl: Annotated[
        Duration | None, Field(description="Default: as long as the profile allows; see the guide.")
    ] = None
    resources: WantedResources | None = None
    labels: Labels = Field(default_factory=dict)
    quote_id: QuoteId | None = None
    snapshot: Annotated[
        SnapshotRef | None, Field(description="Its disk begins as a copy of this snapshot, not of an image.")
    ] = None
    volumes: WantedVolumes = Field(default_factory=list)
    inspect: Inspect | None = None

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.bootstrap is None) == (self.command is None):
            raise ValueError("give either bootstrap or command")
        return self


class ChangeService(Request):
    """What is left out stays. A change of `env` or `port` makes a new process, as a redeploy does."""

    env: Annotated[Env | None, Field(description="Replaces the plain environment.")] = None
    port: Annotated[
        Annotated[int, Field(ge=0, le=65535)] | None, Field(description="0: it listens on $PORT.")
    ] = None
    health: Health | None = None
    restart: Restart | None = None
    idle_s: Seconds | None = None
    wake: bool | None = None
    public: bool | None = None
    drain_s: Seconds | None = None
    stop_timeout_s: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] | None = None
    vcpus: Annotated[
        Annotated[int, Field(ge=0, le=256)] | None,
        Field(description="CPUs in all, each with 2 GB; at once, while it runs. 0: as it was made."),
    ] = None
    inspect: Inspect | None = None


class RedeployService(Request):
    """Everything is optional: an empty body starts the same again, with the vault as it is now."""

    bootstrap: Bootstrap | None = None
    command: ShellCommand | None = None
    files: Files = Field(default_factory=list)
    env: Annotated[Env | None, Field(description="Replaces the plain environment.")] = None

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if self.bootstrap is not None and self.command is not None:
            raise ValueError("give bootstrap or command, not both")
        return self


class ClaimDomain(Request):
    domain: DomainName


class Domain(Answer):
    domain: str
    token: Annotated[str, Field(description="To be served by the domain as it is, as text.")]
    proof_url: Annotated[str, Field(description="Where the token must be served for the proof.")]
    verified: bool
    verified_at: Moment | None = None
    failing_since: Annotated[
        Moment | None,
        Field(description="It no longer serves the token; if that goes on, it leads here no more."),
    ] = None


class DomainList(Answer):
    domains: list[Domain]


class Vault(Answer):
    """Names only: values go in and never come out."""

    names: list[str]
    updated_at: Moment | None = None
    in_use: Annotated[bool, Field(description="The present process was started with what is in it now.")]


class SetVault(Request):
    secrets: Annotated[
        dict[EnvName, EnvValue], Field(max_length=256, description="All there shall be, by name.")
    ]


class ChangeVault(Request):
    secrets: Annotated[
        dict[EnvName, EnvValue | None],
        Field(max_length=256, description="Names to set; null takes a name out. Others stay."),
    ]


class HealthView(Answer):
    path: str | None
    interval_s: float
    timeout_s: float
    threshold: int
    start_timeout_s: float


class RestartView(Answer):
    policy: str
    backoff_s: float
    backoff_max_s: float
    max_crashes: int
    window_s: float


class Service(Answer):
    id: ServiceId
    name: ServiceName
    sandbox_id: SandboxId
    state: ServiceState
    reason: Annotated[str, Field(description="Why it is in this state.")]
    state_since: Moment
    host: Annotated[str, Field(description="Its name below the platform's domain.")]
    url: Annotated[str | None, Field(description="Where it answers; null: no reverse proxy here.")] = None
    domains: Annotated[list[str], Field(description="Proven domains of its own.")]
    public: bool
    port: Annotated[int | None, Field(description="Where its present process listens, inside.")] = None
    run: Annotated[int, Field(description="How many processes it has had.")]
    crashes: Annotated[int, Field(description="Ends of processes within the restart window.")]
    restart_at: Moment | None = None
    command: str | None = None
    bootstrap: str | None = None
    cwd: str | None = None
    user: str | None = None
    env: dict[str, str]
    secrets: Annotated[list[str], Field(description="Names of what is in its vault.")]
    fixed_port: int | None = None
    health: HealthView
    restart: RestartView
    idle_s: float
    wake: bool
    drain_s: float
    stop_timeout_s: float
    vcpus: Annotated[float | None, Field(description="CPUs of its sandbox.")] = None
    memory_mb: int | None = None
    volumes: Annotated[list[AttachedVolume], Field(description="Of its sandbox.")] = Field(
        default_factory=list
    )
    locked_at: Moment | None = None
    created_at: Moment
    deployed_at: Moment
    expires_at: Annotated[Moment | None, Field(description="When its sandbox ends by itself.")] = None
    rate_msats_per_s: Annotated[int, Field(description="What it costs now, in thousandths of a sat.")] = 0
    exposure: Annotated[
        Exposure | None,
        Field(description="What was found when it was opened to everyone; null: nobody looked lately."),
    ] = None


class ServicePage(Answer):
    services: list[Service]
    next_cursor: Cursor | None = None


class LogLine(Answer):
    number: Annotated[int, Field(description="Grows by one with each line; `after` takes it.")]
    at: Moment
    run: Annotated[int, Field(description="Which of its processes printed it.")]
    stream: Annotated[
        Literal["stdout", "stderr", "system"], Field(description="`system`: a word of the platform.")
    ]
    text: str


class LogPage(Answer):
    lines: list[LogLine]
