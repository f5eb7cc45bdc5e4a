"""The host as its owner sees it, and the answers of the probes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from sandboxer.wire.capabilities import BackendCapabilities
from sandboxer.wire.words import Answer


class Host(Answer):
    version: str
    uptime_s: float
    backends: list[BackendCapabilities]
    facts: Annotated[dict[str, str], Field(description="What the backends saw of this host.")]
    sandboxes: Annotated[dict[str, int], Field(description="How many, by state.")]


class GarbageItem(Answer):
    id: Annotated[str, Field(description="Name of a tree, or id of a kept disk.")]
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
