"""What to do about a service: plain functions that are told what was seen, and when it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.backends.guest import Exit
from sandboxer.sandboxes import lifecycle
from sandboxer.work.services.lifecycle import Signal
from sandboxer.work.services.specs import Policy, Restart, Spec

# Whatever its owner asked for, pauses grow to a second: each restart is a few writes that all wait for.
LEAST_WINDOW_S = 10.0
LEAST_PAUSE_S, LEAST_PAUSE_GROWS_TO_S = 0.05, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterExit:
    """What follows the end of a process."""

    signal: Signal
    # The ends that count, this one included.
    crashes: tuple[datetime, ...]
    restart_at: datetime | None = None


def after_exit(
    restart: Restart, crashes: Sequence[datetime], *, is_failure: bool, now: datetime
) -> AfterExit:
    """Restart, and when; or give up. Pauses double with every end that is still within the window."""
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
    """What a service stands on: the state of its sandbox, in the words that matter here."""

    UP = "up"
    FROZEN = "frozen"
    # Stopped by someone who may; stopped by accident (the host rebooted, its supervisor died); out of sats.
    STOPPED = "stopped"
    HALTED = "halted"
    REAPED = "reaped"
    # Not there yet; never again.
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
    """None: there is no record of it any more."""
    if state is None:
        return SandboxStatus.GONE
    if is_frozen:
        return SandboxStatus.FROZEN
    if state is lifecycle.State.STOPPED:
        return SandboxStatus.STOPPED if reason in _ON_PURPOSE else SandboxStatus.HALTED
    return _STATES.get(state, SandboxStatus.GONE)


def sleeps_at(spec: Spec, *, since: datetime, last_request: datetime | None) -> datetime | None:
    """When it may go to sleep, if nobody asks for anything until then."""
    if spec.idle_s <= 0:
        return None
    return max(since, last_request or since) + timedelta(seconds=spec.idle_s)
