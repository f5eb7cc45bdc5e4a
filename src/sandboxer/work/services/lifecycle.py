"""A service: what its owner asked for, the table of its states, and the decisions about it. Pure.

A service is one process in a sandbox of its own. The record's `is_wanted` says whether its owner wants it to
run; the state says whether it does. Every change of state goes through `LIFECYCLE`. The decisions are plain
functions that receive what was observed and the present time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sandboxer.backends.guest import Exit
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes import lifecycle
from sandboxer.sandboxes.exposure import Inspect
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.store.steps import Lifecycle

# The two values of $PORT: one for the present process, the other for its successor.
PORTS = (8080, 8081)


class Policy(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


@value_class
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


@value_class
class Restart:
    policy: Policy = Policy.ALWAYS
    # Doubled with every crash within the window.
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0
    # More than this within the window is a crash loop.
    max_crashes: int = 5
    window_s: float = 300.0


@value_class
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


def spec_from_json(kept: Mapping[str, Any]) -> Spec:
    health, restart = dict(kept["health"]), dict(kept["restart"])
    return Spec(
        **{name: value for name, value in kept.items() if name not in ("health", "restart")},
        health=Health(**health),
        restart=Restart(**{**restart, "policy": Policy(restart["policy"])}),
    )


@value_class
class NewFile:
    # Below /workspace unless it is absolute.
    path: str
    content: bytes
    mode: int | None = None


@value_class
class NewService:
    name: str
    spec: Spec
    sandbox: CreateRequest
    files: tuple[NewFile, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    # What is done where it would show secrets to everyone; None: they are named.
    inspect: Inspect | None = None


@value_class
class Redeploy:
    """What a redeploy changes. A field that is None stays as it is."""

    bootstrap: str | None = None
    command: str | None = None
    env: Mapping[str, str] | None = None
    files: tuple[NewFile, ...] = ()


@value_class
class DomainPolicy:
    """How often the proof of a domain is checked again, and how long it may be missing."""

    every: timedelta = timedelta(hours=24)
    grace: timedelta = timedelta(hours=72)


class State(StrEnum):
    # Its sandbox is being made.
    CREATING = "creating"
    # Its process runs and was not seen healthy yet.
    STARTING = "starting"
    RUNNING = "running"
    # It runs, and does not answer as it should.
    UNHEALTHY = "unhealthy"
    # Its process ended; the next one starts when the pause is over.
    RESTARTING = "restarting"
    # Its sandbox is frozen: by its owner, or because nobody asked for anything.
    SLEEPING = "sleeping"
    # Nothing runs, because its owner stopped it or because its sandbox is stopped.
    STOPPED = "stopped"
    # Its process ended too often in too short a time. It is started again only when its owner asks.
    CRASH_LOOPING = "crash_looping"
    # It ended and is not restarted, or could not be made.
    FAILED = "failed"
    REMOVED = "removed"


class Signal(StrEnum):
    # The service was requested. This is the only signal that has no state before it.
    REQUEST = "request"
    # A process was started for it.
    LAUNCHED = "launched"
    HEALTHY = "healthy"
    SICK = "sick"
    # Its process ended and: will be restarted (exited); ended too often (crash_loop); will not be restarted,
    # without a failure (ended) or with one (broke).
    EXITED = "exited"
    CRASH_LOOP = "crash_loop"
    ENDED = "ended"
    BROKE = "broke"
    # Its sandbox was frozen; its sandbox runs again.
    SLEEP = "sleep"
    WAKE = "wake"
    # Its owner stopped it, or its sandbox stopped.
    STOP = "stop"
    REMOVE = "remove"


S, E = State, Signal

# A process of the service exists.
ALIVE = frozenset({S.STARTING, S.RUNNING, S.UNHEALTHY})
# The reconciler still acts on a service in one of these states.
KEPT = frozenset({*ALIVE, S.RESTARTING, S.SLEEPING})
FINAL = frozenset({S.REMOVED})
_LEFT = frozenset(S) - FINAL

TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    # From `starting` too: a redeploy replaces the process of a service that runs.
    **{(s, E.LAUNCHED): S.STARTING for s in _LEFT},
    **{(s, E.HEALTHY): S.RUNNING for s in ALIVE},
    **{(s, E.SICK): S.UNHEALTHY for s in ALIVE},
    **{(s, E.EXITED): S.RESTARTING for s in KEPT},
    **{(s, E.CRASH_LOOP): S.CRASH_LOOPING for s in KEPT},
    **{(s, E.ENDED): S.STOPPED for s in KEPT},
    **{(s, E.BROKE): S.FAILED for s in _LEFT},
    **{(s, E.SLEEP): S.SLEEPING for s in (*ALIVE, S.RESTARTING)},
    (S.SLEEPING, E.WAKE): S.RUNNING,
    **{(s, E.STOP): S.STOPPED for s in _LEFT if s is not S.CREATING},
    **{(s, E.REMOVE): S.REMOVED for s in _LEFT},
}


LIFECYCLE = Lifecycle(TRANSITIONS)


# Pauses grow to at least a second whatever the owner asked for: each restart costs writes that everybody
# waits for.
LEAST_WINDOW_S = 10.0
LEAST_PAUSE_S, LEAST_PAUSE_GROWS_TO_S = 0.05, 1.0


@value_class
class AfterExit:
    """What follows the end of a process."""

    signal: Signal
    # The ends of processes within the window, including this one.
    crashes: tuple[datetime, ...]
    restart_at: datetime | None = None


def after_exit(
    restart: Restart, crashes: Sequence[datetime], *, is_failure: bool, now: datetime
) -> AfterExit:
    """Decides whether and when to restart, or to give up. The pause doubles with every end within
    the window.
    """
    window = now - timedelta(seconds=max(restart.window_s, LEAST_WINDOW_S))
    counted = (*(moment for moment in crashes if moment > window), now)
    if restart.policy is Policy.NEVER or (restart.policy is Policy.ON_FAILURE and not is_failure):
        return AfterExit(signal=Signal.BROKE if is_failure else Signal.ENDED, crashes=counted)
    if len(counted) > restart.max_crashes:
        return AfterExit(signal=Signal.CRASH_LOOP, crashes=counted)
    doubled = 2 ** min(len(counted) - 1, 20)
    pause = min(restart.backoff_s * doubled, restart.backoff_max_s)
    least = min(LEAST_PAUSE_S * doubled, LEAST_PAUSE_GROWS_TO_S)
    return AfterExit(
        signal=Signal.EXITED, crashes=counted, restart_at=now + timedelta(seconds=max(least, pause))
    )


def exit_in_words(ended: Exit) -> str:
    if ended.reason is not None:
        return f"it was ended by the sandbox: {ended.reason.value}"
    if ended.signal is not None:
        return f"it was killed by signal {ended.signal}"
    return f"it exited with {ended.code}"


class SandboxStatus(StrEnum):
    """The state of a service's sandbox, reduced to what matters to the service."""

    UP = "up"
    FROZEN = "frozen"
    # Stopped by someone who may; stopped by accident (the host rebooted, its supervisor died); out of sats.
    STOPPED = "stopped"
    HALTED = "halted"
    REAPED = "reaped"
    # It does not exist yet; it will never run again.
    COMING = "coming"
    GONE = "gone"


_STATES = {
    lifecycle.State.REQUESTED: SandboxStatus.COMING,
    lifecycle.State.PROVISIONING: SandboxStatus.COMING,
    lifecycle.State.READY: SandboxStatus.UP,
    lifecycle.State.ACTIVE: SandboxStatus.UP,
    lifecycle.State.GRACE: SandboxStatus.UP,
    lifecycle.State.FROZEN: SandboxStatus.FROZEN,
    lifecycle.State.REAPED: SandboxStatus.REAPED,
}
_ON_PURPOSE = frozenset({"stop_by_caller", "ttl_locked", "idle_locked", "account_suspended"})


def sandbox_status(state: lifecycle.State, reason: str, *, is_frozen: bool) -> SandboxStatus:
    """Returns the status for a sandbox's state."""
    if is_frozen:
        return SandboxStatus.FROZEN
    if state is lifecycle.State.STOPPED:
        return SandboxStatus.STOPPED if reason in _ON_PURPOSE else SandboxStatus.HALTED
    return _STATES.get(state, SandboxStatus.GONE)


def sleeps_at(spec: Spec, *, since: datetime, last_request: datetime | None) -> datetime | None:
    """Returns when the service may be put to sleep if no further request comes, or None if it never is."""
    if spec.idle_s <= 0:
        return None
    return max(since, last_request or since) + timedelta(seconds=spec.idle_s)
