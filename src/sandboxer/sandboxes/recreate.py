"""Recreate: a new disk from the image under the same id. What was in the old one is gone; TTL begins anew."""

from __future__ import annotations

from functools import partial

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict
from sandboxer.sandboxes import planning
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.disks import keeper_of
from sandboxer.sandboxes.establish import Stopwatch, establish, setup_of
from sandboxer.sandboxes.inspection import fingerprint_of
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.locks import refuse_guarded
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room, actor_of


async def recreate(room: Room, sandbox_id: str, caller: Caller, *, despite_lock: bool = False) -> Sandbox:
    """Raises IllegalTransition unless it is ready, active, frozen, stopped or failed.

    It wipes the disk, so what is locked needs `despite_lock`: that a second proof allowed it.
    """
    sandbox = await room.visible(sandbox_id, caller)
    profile = room.profiles.get(sandbox.profile)
    planning.check_backend(profile, await fingerprint_of(room, sandbox.backend))
    await room.check_refs(profile, sandbox.account)
    if sandbox.origin is not None:
        # Its new disk would begin as a copy again: asked before the old one goes.
        await keeper_of(room.backend_of(sandbox), sandbox.backend).check_kept(sandbox.origin)
    actor = actor_of(caller)

    async def act() -> Sandbox:
        watch = Stopwatch()
        fresh: dict[str, object] = {
            "handle": None,
            "ready_at": None,
            "expires_at": None,
            "ttl_left": None,
            "report": None,
        }
        current = room.book.peek(sandbox_id)
        again = await room.book.move(
            sandbox_id,
            Step(
                signal=Signal.RECREATE,
                actor=actor,
                reason="recreate",
                changes=fresh,
                check=partial(_check, despite_lock=despite_lock),
                # It gave its slot back when it stopped.
                starts=current is not None and current.state not in LIVE,
            ),
        )
        await room.backend_of(again).teardown(sandbox_id)
        watch.lap("teardown")
        room.activity.touch(sandbox_id)
        return await establish(room, again, setup_of(again, profile), watch, actor=actor)

    return await room.operations.perform(sandbox_id, "recreate", act)


def _check(sandbox: Sandbox, *, despite_lock: bool) -> None:
    if not despite_lock:
        refuse_guarded(sandbox)
    if sandbox.state is State.FAILED and sandbox.volumes:
        raise Conflict(
            why="it let go of its volumes when it failed, and others may have them now",
            reason="volumes_let_go",
            hint="Make a new sandbox with them.",
        )
