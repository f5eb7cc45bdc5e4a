"""What the owner of a service asked for: which program runs, how its health is checked, when it is restarted.
The values here belong to no edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sandboxer.sandboxes.requests import CreateRequest

# The two values of $PORT: one for the present process, the other for its successor.
PORTS = (8080, 8081)


class Policy(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    # None: it is healthy if it accepts a connection. Otherwise a GET of this path must be answered with 200
    # to 399.
    path: str | None = None
    interval_s: float = 10.0
    timeout_s: float = 5.0
    # This many failures in a row make it unhealthy.
    threshold: int = 3
    # How long a new process may take to become healthy.
    start_timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    policy: Policy = Policy.ALWAYS
    # Doubled with every crash within the window.
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0
    # More than this within the window is a crash loop.
    max_crashes: int = 5
    window_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The program of a service and how it is run. Exactly one of `bootstrap` (a script) and `command` (text
    for a shell) is given.
    """

    bootstrap: str | None = None
    command: str | None = None
    cwd: str | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    # None: the program listens on $PORT, which changes with each redeploy.
    port: int | None = None
    health: Health = Health()
    restart: Restart = Restart()
    # Seconds without a request after which it sleeps; 0: never.
    idle_s: float = 0.0
    wakes: bool = True
    is_public: bool = False
    # How long the old process goes on after its successor took over, and how long it has to end.
    drain_s: float = 2.0
    stop_timeout_s: float = 10.0


def runs_alike(one: Spec, other: Spec) -> bool:
    """Tells whether both specs start the same process."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("bootstrap", "command", "cwd", "user", "env", "port")
    )


def next_port(spec: Spec, present: int | None) -> int:
    if spec.port is not None:
        return spec.port
    return PORTS[1] if present == PORTS[0] else PORTS[0]


def to_json(spec: Spec) -> dict[str, Any]:
    return asdict(spec)


def from_json(kept: Mapping[str, Any]) -> Spec:
    health, restart = dict(kept["health"]), dict(kept["restart"])
    return Spec(
        **{name: value for name, value in kept.items() if name not in ("health", "restart")},
        health=Health(**health),
        restart=Restart(**{**restart, "policy": Policy(restart["policy"])}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    # Below /workspace unless it is absolute.
    path: str
    content: bytes
    mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewService:
    name: str
    spec: Spec
    sandbox: CreateRequest
    files: tuple[NewFile, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeploy:
    """What a redeploy changes. A field that is None stays as it is."""

    bootstrap: str | None = None
    command: str | None = None
    env: Mapping[str, str] | None = None
    files: tuple[NewFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPolicy:
    """How often the proof of a domain is checked again, and how long it may be missing."""

    every: timedelta = timedelta(hours=24)
    grace: timedelta = timedelta(hours=72)
