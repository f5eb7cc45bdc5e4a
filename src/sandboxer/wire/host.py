"""The host as its owner sees it, and the answers of the probes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.capabilities import BackendCapabilities
from sandboxer.wire.words import Answer


class Host(Answer):
    version: str
    uptime_s: float
    backends: list[BackendCapabilities]
    facts: Annotated[dict[str, str], Field(description="What the backends saw of this host.")]
    sandboxes: Annotated[dict[str, int], Field(description="How many, by state.")]


class Health(Answer):
    status: Literal["ok", "degraded"] = "ok"
    checks: Annotated[
        dict[str, Literal["ok", "failing"]],
        Field(description="The database and each backend.", examples=[{"store": "ok"}]),
    ] = Field(default_factory=dict)


class Readiness(Answer):
    status: Literal["ready", "starting", "stopping"]
