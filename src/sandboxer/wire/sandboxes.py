"""Sandboxes: what a caller may ask for when creating one, and what the platform says about it. A boost gives
more CPUs and memory for a while; events tell what happened to it, in order, with who did it and why.
"""

import json
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from sandboxer.wire.promises import (
    Answered,
    CheckpointName,
    IsolationName,
    ScopeName,
    SetupMetadata,
    WantedPlacement,
    WantedSetup,
    WantedWorkspace,
    Workspace,
)
from sandboxer.wire.routes import Route, WantedRoute
from sandboxer.wire.words import (
    MAX_LABELS,
    MAX_SATS,
    Answer,
    Cursor,
    Duration,
    Env,
    LabelKey,
    Labels,
    LabelValue,
    Moment,
    Name,
    Naming,
    Network,
    QuoteId,
    Request,
    SandboxId,
    SnapshotRef,
    Trust,
    VolumeId,
    VolumeRef,
)

# Kept with the record and told in events: bounded as a whole.
MAX_KEPT_JSON_BYTES = 64 * 1024
StateName = Literal[
    "requested",
    "provisioning",
    "ready",
    "active",
    "frozen",
    "stopped",
    "grace",
    "reaped",
    "expired",
    "failed",
    "destroying",
    "destroyed",
]
# `agent-dev` is `profile.agent-dev`.
WHOLE_PROFILE_ID = AfterValidator(lambda text: text if text.startswith("profile.") else f"profile.{text}")
ProfileId = Annotated[
    str,
    Field(
        pattern=r"^(profile\.)?[a-z0-9][a-z0-9.-]{0,100}$",
        max_length=110,
        description="Id of a profile, with or without `profile.`; see GET /v1/profiles.",
        examples=["profile.agent-dev", "agent-dev"],
    ),
    WHOLE_PROFILE_ID,
]
ImageName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-zA-Z0-9._:/@-]{0,254}$",
        max_length=255,
        description="Name of an image of the host, name or id of a published one (GET /v1/images), or one of"
        " a registry (`python:3.12`).",
        examples=["base"],
    ),
    Naming("image", may_be_of_host=True),
]
InputName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,62}$", max_length=63)]
VolumeMode = Annotated[
    Literal["rw", "ro"],
    Field(description="`rw`: read and write, one sandbox alone; `ro`: read, with any number of others."),
]


def _keepable(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What cannot be said in JSON and UTF-8 could be kept, but never be told again, nor any list it is in."""
    try:
        size = len(json.dumps(values, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        raise ValueError("must be JSON: no NaN, no infinity, no half characters, not nested deeply") from None
    if size > MAX_KEPT_JSON_BYTES:
        raise ValueError(f"must be at most {MAX_KEPT_JSON_BYTES} bytes of JSON")
    return values


class WantedResources(Request):
    """What the sandbox may use at most. What is left out comes from the profile."""

    vcpus: Annotated[
        Annotated[float, Field(ge=0.05, le=256, allow_inf_nan=False)] | None, Field(description="CPU cores.")
    ] = None
    memory_mb: Annotated[
        Annotated[int, Field(ge=16, le=4_194_304)] | None, Field(description="Memory in MiB.")
    ] = None
    disk_mb: Annotated[
        Annotated[int, Field(ge=16, le=16_777_216)] | None, Field(description="Disk in MiB.")
    ] = None
    pids: Annotated[
        Annotated[int, Field(ge=8, le=4_194_304)] | None, Field(description="Processes and threads.")
    ] = None


class WantedVolume(Request):
    volume: VolumeRef
    path: Annotated[
        str,
        Field(
            min_length=2,
            max_length=200,
            pattern=r"^/[^\x00]*$",
            description="Where it is seen inside; made if missing. Not in /proc, /dev, /sys, /run, /etc.",
            examples=["/data"],
        ),
    ]
    mode: VolumeMode = "rw"


WantedVolumes = Annotated[
    list[WantedVolume],
    Field(
        max_length=8,
        description="Disks to attach, until the sandbox is destroyed; see POST /v1/volumes.",
        examples=[[{"volume": "data", "path": "/data", "mode": "rw"}]],
    ),
]


class WantedInception(Request):
    """Lets programs in it speak to this API, within these bounds, by `/run/sandboxer/api.sock`. No key exists
    inside.
    """

    budget_sats: Annotated[
        int, Field(ge=0, le=MAX_SATS, description="Moved from your balance; what is left comes back.")
    ] = 0
    depth: Annotated[
        int, Field(ge=0, le=1000, description="Generations that sandboxes made by it may grant in turn.")
    ] = 0
    slots: Annotated[
        int | None,
        Field(ge=0, le=1_000_000, description="Sandboxes at once, of all generations; null: as many as you."),
    ] = 1
    scopes: Annotated[
        list[Annotated[str, Field(max_length=64)]] | None,
        Field(
            max_length=32,
            description="What it may do, as for a delegated key; null: make, use and end sandboxes.",
            examples=[["sandboxes:create", "sandboxes:read", "exec"]],
        ),
    ] = None
    on_parent_end: Annotated[
        Literal["end", "adopt"],
        Field(description="When it ends, those that it made end too, or go on with what they were given."),
    ] = "end"


class CreateSandbox(Request):
    """Everything is optional: an empty body makes a sandbox of the default profile."""

    profile: Annotated[ProfileId | None, Field(description="See GET /v1/profiles.")] = None
    name: Annotated[
        Name | None, Field(description="For people; no two of yours that live have the same.")
    ] = None
    image: Annotated[ImageName | None, Field(description="See GET /v1/images.")] = None
    trust: Annotated[
        Trust | None, Field(description="`zero`: no network; `semi`: filtered. `network` says it by intent.")
    ] = None
    network: Network | None = None
    ttl: Annotated[
        Duration | None, Field(description="How long it lives once ready, as 30s, 15m, 4h or 2d.")
    ] = None
    idle_timeout: Annotated[
        Duration | None, Field(description="How long it may do nothing before it ends.")
    ] = None
    resources: Annotated[
        WantedResources | None, Field(description="Limits; the profile says what is left out.")
    ] = None
    env: Env = Field(default_factory=dict)
    labels: Labels = Field(default_factory=dict)
    inputs: Annotated[
        dict[InputName, JsonValue],
        AfterValidator(_keepable),
        Field(
            max_length=64,
            description="Parameters of the profile; each is the environment variable SANDBOXER_INPUT_<NAME>."
            " `repo`, an http or https URL, is cloned into /workspace before it is ready, at the branch, tag"
            " or commit `repo_ref`.",
            examples=[{"repo": "https://git.example.com/tool.git", "repo_ref": "main"}],
        ),
    ] = Field(default_factory=dict)
    consumer: Annotated[
        dict[InputName, JsonValue],
        AfterValidator(_keepable),
        Field(
            max_length=16,
            description="Who this is for, kept with the sandbox and its events as it is.",
            examples=[{"actor": "agt", "session_id": "s-1"}],
        ),
    ] = Field(default_factory=dict)
    quote_id: QuoteId | None = None
    snapshot: Annotated[
        SnapshotRef | None,
        Field(description="Begin as a copy of this snapshot, instead of an image; it says what is left out."),
    ] = None
    volumes: WantedVolumes = Field(default_factory=list)
    inception: WantedInception | None = None
    scope: ScopeName | None = None
    workspace: WantedWorkspace | None = None
    setup: WantedSetup | None = None
    setup_metadata: SetupMetadata | None = None
    placement: WantedPlacement | None = None
    isolation: IsolationName | None = None
    checkpoint: CheckpointName | None = None
    route: WantedRoute | None = None


class Inception(Answer):
    """What it may do from inside."""

    budget_sats: int
    depth: int
    slots: int | None = None
    scopes: list[str]
    on_parent_end: Literal["end", "adopt"]


class Resources(Answer):
    vcpus: float
    memory_mb: int
    disk_mb: int
    pids: int


class AttachedVolume(Answer):
    volume_id: VolumeId
    path: Annotated[str, Field(description="Where it is seen inside.", examples=["/data"])]
    mode: VolumeMode


def _no_volumes() -> list[AttachedVolume]:
    """Stands for `list`, whose signature, which pydantic asks for, Python would first have to parse."""
    return []


def _nothing_answered() -> list[Answered]:
    return []


class Sandbox(Answer):
    id: SandboxId
    name: str | None = None
    state: StateName
    reason: Annotated[
        str | None, Field(description="Why it is in this state.", examples=["probe_passed"])
    ] = None
    profile: Annotated[str, Field(examples=["profile.agent-dev"])]
    profile_version: Annotated[str | None, Field(examples=["1"])] = None
    backend: Annotated[str, Field(examples=["ext.namespaces"])]
    image: Annotated[str, Field(examples=["base"])]
    trust: Trust
    network: Annotated[
        str | None,
        Field(description="What it was made with; none: what its profile says.", examples=["packages"]),
    ] = None
    resources: Resources
    labels: dict[str, str] = Field(default_factory=dict)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    consumer: dict[str, JsonValue] = Field(default_factory=dict)
    ttl: Annotated[str | None, Field(description="Counted from ready_at.", examples=["4h"])] = None
    idle_timeout: Annotated[str | None, Field(examples=["30m"])] = None
    created_at: Moment
    ready_at: Moment | None = None
    expires_at: Moment | None = None
    ended_at: Moment | None = None
    locked_at: Annotated[
        Moment | None,
        Field(description="Since when destroying, recreating and unlocking it need a second proof."),
    ] = None
    timings_ms: Annotated[
        dict[str, float],
        Field(description="Where the time of the establishment went, by step.", examples=[{"total": 7.9}]),
    ] = Field(default_factory=dict)
    report: Annotated[
        dict[str, JsonValue] | None,
        Field(description="What the profile's report command said of the host, seen from inside."),
    ] = None
    quote_id: Annotated[str | None, Field(description="The quote that promised its rates.")] = None
    snapshot: Annotated[str | None, Field(description="Of which its disk began as a copy.")] = None
    volumes: list[AttachedVolume] = Field(default_factory=_no_volumes)
    inception: Annotated[
        Inception | None, Field(description="What it was granted; null: it may not speak to this API.")
    ] = None
    scope: Annotated[str | None, Field(description="With whom it is shared.", examples=["session"])] = None
    workspace: Annotated[
        Workspace | None, Field(description="The folder for work, and who may write to it.")
    ] = None
    secret_refs: Annotated[
        list[str], Field(description="Names of the secrets that it was asked to be made with.")
    ] = Field(default_factory=list)
    answered: Annotated[
        list[Answered], Field(description="What became of what was only preferred, wish by wish.")
    ] = Field(default_factory=_nothing_answered)
    route: Annotated[Route | None, Field(description="Why its backend was chosen.")] = None
    spent_sats: Annotated[
        int | None,
        Field(description="What it cost in all, rounded up; told when it is destroyed.", examples=[42]),
    ] = None
    egress_sent_bytes: Annotated[
        int | None, Field(description="What it sent outwards in all; told when it is destroyed.")
    ] = None
    egress_received_bytes: Annotated[
        int | None, Field(description="What came back to it in all; told when it is destroyed.")
    ] = None
    rate_msats_per_s: Annotated[
        int, Field(description="What it costs now, in thousandths of a sat a second.", examples=[25])
    ] = 0
    kept_memory_mb: Annotated[int, Field(description="It goes on when it is resumed.")] = 0


class SandboxPage(Answer):
    sandboxes: list[Sandbox]
    next_cursor: Cursor | None = None


class MadeInside(Answer):
    """What programs in a sandbox had made, of all generations, when that ended."""

    ends: Annotated[bool, Field(description="Whether it ends with it; else it goes on with what it has.")]
    count: int
    sandbox_ids: Annotated[list[SandboxId], Field(description="The first hundred.")]


class DestroyedSandbox(Sandbox):
    made_inside: Annotated[MadeInside | None, Field(description="null: nothing, or it had ended before.")] = (
        None
    )
    cleanup: Annotated[dict[str, list[str]] | None, Field(description="`removed`, and `left`.")] = None


class TreeEntry(Answer):
    id: SandboxId
    name: str | None = None
    state: StateName
    depth: Annotated[int, Field(description="0: this account made it; 1: one of those did; and so on.")]
    parent: Annotated[SandboxId | None, Field(description="The sandbox that made it.")] = None
    spent_sats: Annotated[
        int | None, Field(description="By all that was made from inside it; null: it may make nothing.")
    ] = None
    left_sats: Annotated[int | None, Field(description="Of what it was given; null: nothing was.")] = None
    rate_msats_per_s: Annotated[int, Field(description="What it costs itself now.")] = 0


class SandboxTree(Answer):
    """Each before those that it made. One that has ended is there while something that it made is."""

    sandboxes: list[TreeEntry]


class ChangeSandbox(Request):
    """What is left out stays as it is."""

    name: Annotated[Name | None, Field(description="Another name; its id stays.")] = None
    labels: Annotated[
        dict[LabelKey, LabelValue | None],
        Field(
            max_length=MAX_LABELS,
            description="Labels to set; null takes one away. Others stay.",
            examples=[{"team": "search", "draft": None}],
        ),
    ] = Field(default_factory=dict)


class ChangeTtl(Request):
    duration: Annotated[
        Duration,
        Field(description="Added to the current expiry; the whole life stays within the profile's maximum."),
    ]
    quote_id: QuoteId | None = None


class Reachability(Answer):
    """Ways to reach what runs inside. A sandbox has no address: everything goes through this API."""

    sandbox_id: SandboxId
    reachable: bool
    state: StateName
    latency_ms: Annotated[float | None, Field(description="One question to the supervisor inside.")] = None
    exec: Annotated[str, Field(description="Path of the route that runs commands.")]
    files: str
    terminal: str
    reason: str | None = None
    ssh: Annotated[
        str | None,
        Field(
            description="Address of its SSH; null: this platform has no gateway.",
            examples=["ssh://sbx_0123456789abcdefghjkmnpqrs@host.example.com:2222"],
        ),
    ] = None
    remote_dir: Annotated[str | None, Field(description="The folder for work inside: /workspace.")] = None
    tunnel: Annotated[
        str | None,
        Field(
            description="Opens its ports: what the profile names for it, or the address that makes links.",
            examples=["ops-bridge"],
        ),
    ] = None
    identity: Annotated[
        str | None,
        Field(
            description="Gives keys for it: what the profile names, or the address that takes SSH keys.",
            examples=["ops-warden"],
        ),
    ] = None
    poll: Annotated[str | None, Field(description="Address that says how it is.")] = None
    events: Annotated[str | None, Field(description="Address that streams what happens to it.")] = None
    webhook: Annotated[
        str | None, Field(description="Address where to ask to be told: POST it a URL and kinds.")
    ] = None


class Usage(Answer):
    sandbox_id: SandboxId
    cpu_s: Annotated[float, Field(description="CPU time used since the start, in seconds.")]
    memory_bytes: int
    memory_limit_bytes: int
    disk_bytes: int
    disk_limit_bytes: int
    processes: int
    processes_limit: int
    egress_sent_bytes: Annotated[
        int, Field(description="From the sandbox outwards in its life so far; these are charged.")
    ]
    egress_received_bytes: Annotated[int, Field(description="Back to it; these cost nothing.")]


class Expired(Answer):
    """What `expire` found past its time, and whether it was acted upon."""

    applied: bool
    sandbox_ids: list[str]


class Boost(Request):
    vcpus: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="CPUs in all, more than it has; each brings 2 GB of memory.",
            examples=[4],
        ),
    ]


class Event(Answer):
    id: Annotated[int, Field(description="Grows; give the last one seen as `after` (or Last-Event-ID).")]
    subject: Annotated[str, Field(description="Id of what it happened to.")]
    kind: Annotated[str, Field(examples=["sandbox.ready"])]
    actor: Annotated[str, Field(description="Who caused it: a key, or a part of the platform.")]
    reason: str
    at: Moment
    data: dict[str, JsonValue] = Field(default_factory=dict)
