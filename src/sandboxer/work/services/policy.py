"""Decisions about services. These plain functions receive what was observed and the present time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.backends.guest import Exit
from sandboxer.sandboxes import lifecycle
from sandboxer.work.services.lifecycle import Signal
from sandboxer.work.services.specs import Policy, Restart, Spec

# Pauses grow to at least a second whatever the owner asked for: each restart costs writes that everybody
# waits for.
LEAST_WINDOW_S = 10.0
LEAST_PAUSE_S, LEAST_PAUSE_GROWS_TO_S = 0.05, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
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
_ON_PURPOSE = frozenset({"stop_by_caller", "ttl_locked", "idle_locked"})


def sandbox_status(state: lifecycle.State | None, reason: str, *, is_frozen: bool) -> SandboxStatus:
    """Returns the status for a sandbox's state. `state` is None if no record of the sandbox is left."""
    if state is None:
        return SandboxStatus.GONE
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
