"""The line from a caller to the supervisor inside a sandbox: who may, and when; an open line counts as work.

`work/` reaches sandboxes through here only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

from sandboxer.backends.guest import Guest
from sandboxer.backends.limited import limited
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, IllegalTransition
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room


class ActivityKind(StrEnum):
    """What a line is for."""

    EXEC = "exec"
    # Starts, lists or signals processes that outlive the line.
    PROCESSES = "processes"
    TERMINAL = "terminal"
    FILES = "files"
    PORT = "port"
    # Listens to what runs anyway: no work in itself, and frozen is no obstacle.
    WATCH = "watch"


# A background process with this tag only waits for others (an interpreter, a service): no work in itself.
RESIDENT_TAG = "@resident"

_ANSWERING = frozenset({State.READY, State.ACTIVE, State.GRACE})


@asynccontextmanager
async def line(room: Room, sandbox_id: str, caller: Caller, *, activity: str) -> AsyncIterator[Guest]:
    """A guest to talk to; the sandbox counts as working while this is open. Costs no database access.

    `activity` is one of ActivityKind. A frozen sandbox allows `files` and `watch` only. Raises NotFound,
    IllegalTransition (wrong state), BackendLost.
    """
    sandbox = await room.visible(sandbox_id, caller)
    _check_state(sandbox, activity, busy_with=room.operations.running(sandbox_id))
    if sandbox.handle is None:
        raise Conflict(why=f"sandbox {sandbox_id} has not been made yet")
    if activity == ActivityKind.WATCH:
        yield limited(await room.backend_of(sandbox).guest(sandbox.handle))
        return
    with room.activity.working(sandbox_id):
        yield limited(await room.backend_of(sandbox).guest(sandbox.handle))


def _check_state(sandbox: Sandbox, activity: str, *, busy_with: str | None) -> None:
    frozen = is_frozen(sandbox)
    if sandbox.state in _ANSWERING and not frozen:
        return
    if frozen and activity in (ActivityKind.FILES, ActivityKind.WATCH):
        return
    raise IllegalTransition(
        signal=activity, state=sandbox.state.value, reason=sandbox.reason, operation=busy_with
    )
