"""What a service shall be, as its owner said it: what runs, how to tell that it is well, when to restart; and
what a caller may ask of services, in words that no edge owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sandboxer.sandboxes.requests import CreateRequest

# Where a program listens that takes its port from $PORT: one for the present process, one for its successor.
PORTS = (8080, 8081)


class Policy(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    # None: it is well if it takes a connection. Else a GET of this must be answered by 200 to 399.
    path: str | None = None
    interval_s: float = 10.0
    timeout_s: float = 5.0
    # So many failures in a row make it unhealthy.
    threshold: int = 3
    # How long a new process may take until it is well for the first time.
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
    """Exactly one of `bootstrap` (a script) and `command` (text for a shell)."""

    bootstrap: str | None = None
    command: str | None = None
    cwd: str | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    # None: the program listens on $PORT, which is another one after each redeploy.
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
    """Does a process of the one do as a process of the other?"""
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
    """None: as it is."""

    bootstrap: str | None = None
    command: str | None = None
    env: Mapping[str, str] | None = None
    files: tuple[NewFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPolicy:
    """How often a domain's proof is looked at again, and how long it may be missing."""

    every: timedelta = timedelta(hours=24)
    grace: timedelta = timedelta(hours=72)
