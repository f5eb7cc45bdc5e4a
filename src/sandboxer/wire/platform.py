"""The platform itself: what it can do, how it is, and what its callers and its owner may see of it.

`Capabilities` say what this platform can do, for a caller that has no key yet. The host is shown as its owner
sees it, with the answers of the probes; the platform as its callers may see it: hosts, pools, counts, and the
caller's own limits.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from sandboxer.wire.sandboxes import Resources
from sandboxer.wire.words import Answer, Moment


class Lack(Answer):
    what: str
    why: str
    remedy: str


class BackendCapabilities(Answer):
    name: str
    healthy: bool
    capabilities: list[str]
    walls: list[str]
    lacks: list[Lack] = Field(default_factory=list)


class Provided(Answer):
    """A capability as registries of capabilities name it."""

    id: Annotated[str, Field(examples=["capability.execution.sandbox-provision"])]
    name: str
    summary: str
    owner: str
    status: Literal["draft", "active"]
    domain: str
    tags: list[str]
    consumption_modes: list[str]
    profiles: Annotated[list[str], Field(description="Those whose backend this platform uses.")]


def _nothing_provided() -> list[Provided]:
    return []


class SignatureVersion(Answer):
    name: str
    canonical: str
    headers: list[str]


class Capabilities(Answer):
    name: str = "sandboxer"
    version: str
    api: str = "v1"
    backends: list[BackendCapabilities]
    trust_levels: list[str]
    features: list[str]
    signatures: list[SignatureVersion]
    limits: dict[str, int | float]
    provides: Annotated[
        list[Provided], Field(description="What it provides, for registries of capabilities.")
    ] = Field(default_factory=_nothing_provided)


class Discovery(Answer):
    """What a stranger needs to begin who knows only the address of the platform."""

    name: str = "sandboxer"
    version: str
    api: str = "v1"
    url: Annotated[str, Field(description="Where the API is.", examples=["https://sandboxes.example"])]
    links: Annotated[dict[str, str], Field(description="Addresses of documents, prices, first operations.")]
    is_charged: Annotated[bool, Field(description="Whether sandboxes cost sats here.")]
    takes_strangers: Annotated[
        bool, Field(description="Whether a wallet without an account may buy; else the operator opens it.")
    ]
    takes_bearer_tokens: Annotated[
        bool, Field(description="`Authorization: Bearer sk_…`, on the platform's machine or over TLS.")
    ]
    signatures: list[SignatureVersion]
    e2b_url: Annotated[str, Field(description="`E2B_API_URL` of E2B's unmodified clients.")]


class Host(Answer):
    version: str
    uptime_s: float
    backends: list[BackendCapabilities]
    facts: Annotated[dict[str, str], Field(description="What the backends saw of this host.")]
    sandboxes: Annotated[dict[str, int], Field(description="How many, by state.")]


class GarbageItem(Answer):
    id: Annotated[str, Field(description="Name of an image tree, or id of a snapshot or volume.")]
    tier: Annotated[
        Literal["leftover", "base"],
        Field(description="A disk without a record; or an older build of an image that nothing lies over."),
    ]
    why: str
    backend: Annotated[str | None, Field(description="Where the disk lies; null for a tree.")]
    size_bytes: Annotated[int | None, Field(description="null: nobody has counted.")]
    since: Annotated[AwareDatetime, Field(description="Since when nobody has needed it.")]
    goes_at: Annotated[
        AwareDatetime | None,
        Field(description="When it is removed; null: never, other servers may have disks over it."),
    ]


class Garbage(Answer):
    grace: Annotated[str, Field(description="How long what nobody needs stays.", examples=["1d"])]
    garbage: list[GarbageItem]


class Collected(Answer):
    removed: list[GarbageItem]


class Health(Answer):
    status: Literal["ok", "degraded"] = "ok"
    checks: Annotated[
        dict[str, Literal["ok", "failing"]],
        Field(
            description="Each part that was tried: the database, the journal of nonces, the state folder,"
            " each backend and what it needs. Why one is failing is in the server's log.",
            examples=[{"store": "ok", "nonces": "ok", "state": "failing", "ext.namespaces/pool": "ok"}],
        ),
    ] = Field(default_factory=dict)


class Readiness(Answer):
    status: Literal["ready", "starting", "stopping"]


class ClusterHost(Answer):
    backend: BackendCapabilities
    total: Annotated[
        Resources | None,
        Field(description="What may be promised to sandboxes; null: the backend does not count."),
    ] = None
    free: Annotated[Resources | None, Field(description="What of it is promised to nobody.")] = None
    facts: Annotated[dict[str, str], Field(description="What it saw of its host (owner only).")] = Field(
        default_factory=dict
    )


class Cluster(Answer):
    mode: Annotated[
        Literal["pooled", "on_demand"],
        Field(description="`pooled`: some kinds of sandbox stand ready before anyone asks."),
    ]
    hosts: list[ClusterHost]
    pool_size: Annotated[int, Field(description="Sandboxes that shall stand ready.")]
    available: Annotated[int, Field(description="Those that do.")]
    allocated: Annotated[int, Field(description="Sandboxes that are kept: yours; everyone's for the owner.")]
    spawning: Annotated[int, Field(description="Of these, being made now.")]


class WarmPool(Answer):
    backend: str
    image: str
    trust: str
    resources: Resources
    wanted: int
    ready: int


class StoragePool(Answer):
    backend: str
    kind: Annotated[str, Field(examples=["btrfs on a loop file"])]
    size_mb: Annotated[int, Field(description="What it takes of the host's disk now.")]
    used_mb: Annotated[int, Field(description="By the file system's own count.")]
    most_mb: Annotated[int, Field(description="What it may grow to now.")]
    promised_mb: Annotated[int, Field(description="To the disks of sandboxes.")]
    free_mb: Annotated[int, Field(description="That may still be promised.")]


class Pools(Answer):
    warm: list[WarmPool]
    storage: list[StoragePool]


class RequestStats(Answer):
    """Of the whole platform since it started (owner only)."""

    answered: int
    by_status: Annotated[dict[str, int], Field(examples=[{"2xx": 120, "4xx": 3}])]
    refused_signatures: int


class Stats(Answer):
    of: Annotated[Literal["account", "platform"], Field(description="Whose: yours, or everyone's (owner).")]
    uptime_s: float
    sandboxes: Annotated[dict[str, int], Field(description="How many, by state.")]
    work: Annotated[
        dict[str, dict[str, int]], Field(description="Jobs, sessions and services: how many, by state.")
    ]
    requests: RequestStats | None = None


class RequestLimit(Answer):
    what: Annotated[
        Literal["key", "account", "address"],
        Field(description="Counted for this key, for the account at its root, or for where it comes from."),
    ]
    per_minute: int
    left: int


class ProfileLimit(Answer):
    profile: str
    ttl_default: str
    ttl_max: str
    resources_max: Resources


class Limits(Answer):
    requests: Annotated[list[RequestLimit], Field(description="Empty: not limited.")]
    slots: Annotated[int | None, Field(description="Sandboxes at once; null: no limit but money.")] = None
    slots_in_use: int
    free_slots: Annotated[int, Field(description="Of them run at rate zero by the tier of this account.")]
    caps: Annotated[dict[str, int], Field(description="Of spending, in sats.")]
    depth: Annotated[int, Field(description="Generations of delegated keys that may still follow.")]
    expires_at: Moment | None = None
    profiles: Annotated[list[ProfileLimit], Field(description="How long and how large a sandbox may be.")]
    maxima: Annotated[
        dict[str, int | float],
        Field(description="The most that single requests may ask for.", examples=[{"execute_ttl_s": 900}]),
    ]


class Stale(Answer):
    """Something on this host that no record accounts for. It stays until `goes_at` or `reap-stale`."""

    id: str
    # As `id`, whatever it is; the older name.
    sandbox_id: str
    kind: Literal["sandbox", "snapshot", "image", "volume", "process"]
    backend: str
    why: str
    first_seen: Moment
    # As far as is known now: time in which no server runs does not count.
    goes_at: Moment


class StaleList(Answer):
    stale: list[Stale]


class Reaped(Answer):
    removed: list[Stale]
