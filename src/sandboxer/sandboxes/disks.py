"""A sandbox's disk kept as it is now, and put back: the backend acts, then the record follows.

What is kept belongs to whoever asked (see `artifacts/snapshots`); this room only knows its id.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from sandboxer.backends.contract import Backend, KeptDisk, Snapshots
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, IllegalTransition, NotAvailable
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State, next_state
from sandboxer.sandboxes.locks import refuse_guarded
from sandboxer.sandboxes.loops.deaths import record_end
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room, actor_of

# Their disk is there, whatever runs on it.
_HAVE_DISKS = frozenset({*LIVE, State.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    sandbox: Sandbox
    disk: KeptDisk
    took_ms: float


def keeper_of(backend: Backend | None, name: str) -> Snapshots:
    if not isinstance(backend, Snapshots):
        raise NotAvailable(what="snapshot", why=f"{name} keeps no disks")
    return backend


async def keep(room: Room, sandbox_id: str, caller: Caller, disk_id: str) -> Kept:
    """One moment of its disk under this id, which nobody has used. It may run, be frozen or stopped.

    Raises IllegalTransition in any other state, and what the backend raises; nothing is left then.
    """
    await room.visible(sandbox_id, caller)

    async def act() -> Kept:
        sandbox = await room.visible(sandbox_id, caller)
        if sandbox.state not in _HAVE_DISKS:
            raise IllegalTransition(signal="snapshot", state=sandbox.state.value, reason=sandbox.reason)
        if sandbox.handle is None:
            raise Broken(why=f"sandbox {sandbox_id} is {sandbox.state} without a handle")
        backend = keeper_of(room.backend_of(sandbox), sandbox.backend)
        began = time.perf_counter()
        disk = await backend.take(sandbox.handle, disk_id)
        return Kept(sandbox=sandbox, disk=disk, took_ms=round((time.perf_counter() - began) * 1e3, 3))

    return await room.operations.perform(sandbox_id, "snapshot", act)


async def restore(
    room: Room, sandbox_id: str, caller: Caller, disk_id: str, *, despite_lock: bool = False
) -> Sandbox:
    """Its disk becomes a copy of the kept one. What ran ends and it starts anew; a stopped one stays stopped.

    What is on the disk now is lost, so what is locked needs `despite_lock`: that a second proof allowed it.
    """
    await room.visible(sandbox_id, caller)
    actor = actor_of(caller)

    async def act() -> Sandbox:
        sandbox = await room.visible(sandbox_id, caller)
        runs_after = next_state(sandbox.state, Signal.RESTORE) is not State.STOPPED
        if not despite_lock:
            refuse_guarded(sandbox)
        if sandbox.handle is None:
            raise Broken(why=f"sandbox {sandbox_id} is {sandbox.state} without a handle")
        if is_frozen(sandbox) and not sandbox.terms.is_entitled:
            # Frozen may cost nothing; to run on costs.
            await room.book.check_start(sandbox)
        backend = keeper_of(room.backend_of(sandbox), sandbox.backend)
        try:
            handle = await backend.restore(sandbox.handle, sandbox.order(), disk_id, start=runs_after)
            if runs_after:
                await room.furnish(sandbox, handle)
        except BaseException:
            await _write_down_what_is_left(room, sandbox, actor)
            raise
        room.activity.touch(sandbox_id)
        step = Step(
            signal=Signal.RESTORE,
            actor=actor,
            reason="restored",
            changes={"handle": handle},
            data={"snapshot": disk_id},
        )
        return await room.book.move(sandbox_id, step)

    return await room.operations.perform(sandbox_id, "restore", act)


async def _write_down_what_is_left(room: Room, sandbox: Sandbox, actor: str) -> None:
    """It may have been stopped on either disk and not have come up again."""
    if sandbox.handle is not None and sandbox.state in LIVE:
        seen = await room.backend_of(sandbox).recover(sandbox.handle)
        await record_end(room, sandbox, seen, actor=actor, by=None)
