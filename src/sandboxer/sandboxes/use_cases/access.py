"""A line connects a caller to the supervisor inside a sandbox; while it is open, the sandbox is at work.

The package `work` reaches sandboxes only through here.

A sandbox is idle when no line is open, nothing that the API started still runs, and its CPU time has hardly
moved. A resident interpreter or service that only waits is idle: its tag says so, and it uses no CPU.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.backends.contract import Backend
from sandboxer.backends.guest import Guest
from sandboxer.backends.limited import limited
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, IllegalTransition, SandboxerError
from sandboxer.sandboxes.activity import Pulse
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox


class ActivityKind(StrEnum):
    """What a line is for."""

    EXEC = "exec"
    # Starts, lists or signals processes that outlive the line.
    PROCESSES = "processes"
    TERMINAL = "terminal"
    FILES = "files"
    PORT = "port"
    # Watches what runs anyway: it is no work in itself, and a frozen sandbox allows it.
    WATCH = "watch"


# A background process with this tag only waits for others (an interpreter, a service) and is no work.
RESIDENT_TAG = "@resident"

_ANSWERING = frozenset({State.READY, State.ACTIVE, State.GRACE})


@asynccontextmanager
async def open_line(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, activity: str
) -> AsyncIterator[Guest]:
    """Open a connection to the guest; the sandbox counts as working meanwhile. It needs no database access.

    `activity` is one of ActivityKind. A frozen sandbox allows `files` and `watch` only. Raises NotFound,
    IllegalTransition (wrong state), BackendLost.
    """
    sandbox = await dependencies.visible(sandbox_id, caller)
    _check_state(sandbox, activity, busy_with=dependencies.operations.running(sandbox_id))
    if sandbox.handle is None:
        raise Conflict(
            why=f"sandbox {sandbox_id} has not been made yet",
            hint=f"Wait until it is ready: GET /v1/sandboxes/{sandbox_id}.",
        )
    if activity == ActivityKind.WATCH:
        yield limited(await dependencies.backend_of(sandbox).guest(sandbox.handle))
        return
    with dependencies.activity.working(sandbox_id):
        yield limited(await dependencies.backend_of(sandbox).guest(sandbox.handle))


def _check_state(sandbox: Sandbox, activity: str, *, busy_with: str | None) -> None:
    frozen = is_frozen(sandbox)
    if sandbox.state in _ANSWERING and not frozen:
        return
    if frozen and activity in (ActivityKind.FILES, ActivityKind.WATCH):
        return
    raise IllegalTransition(
        signal=activity, state=sandbox.state.value, reason=sandbox.reason, operation=busy_with
    )


# Below one percent of one CPU, plus what a wake-up of the supervisor costs, a sandbox is not busy.
BUSY_SHARE = 0.01
BUSY_FLOOR_S = 0.02
_CAN_BE_IDLE = frozenset({State.READY, State.ACTIVE})


def idle_check_at(sandbox: Sandbox, pulse: Pulse, *, now: datetime) -> datetime | None:
    """Return when to check next whether it is idle; None: never.

    CPU time is read half-way through the wait, to have something to compare with at its end. While it is at
    work the wait may begin at any moment: a look that is due later than that would be late.
    """
    if sandbox.idle_timeout is None or sandbox.state not in _CAN_BE_IDLE or sandbox.ready_at is None:
        return None
    if pulse.open_lines:
        return now + sandbox.idle_timeout / 2
    since = max(pulse.since, sandbox.ready_at)
    return since + (sandbox.idle_timeout / 2 if pulse.cpu_s is None else sandbox.idle_timeout)


def has_moved(cpu_s: float, cpu_s_before: float, elapsed: timedelta) -> bool:
    return cpu_s - cpu_s_before > BUSY_FLOOR_S + BUSY_SHARE * elapsed.total_seconds()


async def is_idle(sandbox: Sandbox, pulse: Pulse, backend: Backend, *, now: datetime) -> bool | None:
    """Return True if its idle time is over, False if it is at work, None if only half of the wait is over."""
    if sandbox.handle is None or pulse.open_lines:
        return False
    cpu_s = (await backend.usage(sandbox.handle)).cpu_s
    if pulse.cpu_s is None or pulse.cpu_read_at is None:
        pulse.cpu_s, pulse.cpu_read_at = cpu_s, now
        return None
    if has_moved(cpu_s, pulse.cpu_s, now - pulse.cpu_read_at):
        return False
    return not await runs_commands(sandbox, backend)


async def runs_commands(sandbox: Sandbox, backend: Backend) -> bool:
    """Return whether something that the API started still runs, other than residents.

    A sandbox that cannot be reached counts as running nothing.
    """
    if sandbox.handle is None:
        return False
    try:
        guest = await backend.guest(sandbox.handle)
        return any(info.exit is None and info.tag != RESIDENT_TAG for info in await guest.processes())
    except SandboxerError:
        return False
