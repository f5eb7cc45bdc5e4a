"""Destroy: idempotent, safe from many callers at once, allowed at any moment of a sandbox's life."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, IllegalTransition
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.locks import refuse_guarded
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room, actor_of

# When a backend fails to remove a sandbox, the timer tries again after this long.
RETRY = timedelta(seconds=30)
_ENDING = frozenset({State.DESTROYING, State.DESTROYED})


async def destroy(room: Room, sandbox_id: str, caller: Caller, *, despite_lock: bool = False) -> Sandbox:
    """`despite_lock`: a second proof allowed it, or the key it belongs to is ending."""
    sandbox = await room.visible(sandbox_id, caller)
    check = None if despite_lock else refuse_guarded
    return await remove(room, sandbox, actor=actor_of(caller), reason="destroyed_by_caller", check=check)


async def remove(
    room: Room,
    sandbox: Sandbox,
    *,
    actor: str,
    reason: str,
    check: Callable[[Sandbox], None] | None = None,
) -> Sandbox:
    """Bring it to `destroyed`. The intent is recorded first: a crash half-way is finished at start.

    `check` may refuse it, in the transaction that records the intent.
    """
    if sandbox.state is State.DESTROYED:
        return sandbox
    await _mark(room, sandbox, actor=actor, reason=reason, check=check)

    async def act() -> Sandbox:
        return await finish(room, sandbox.id, actor=actor)

    return await room.operations.preempt(sandbox.id, "destroy", act)


async def finish(room: Room, sandbox_id: str, *, actor: str) -> Sandbox:
    """Tear down one that is `destroying`. Destroyed already is success."""
    sandbox = await room.book.find(sandbox_id)
    if sandbox is None:
        raise Broken(why=f"sandbox {sandbox_id} is being destroyed without a record")
    if sandbox.state is State.DESTROYED:
        return sandbox
    await room.backend_of(sandbox).teardown(sandbox_id)
    # What it was told in confidence ends with it; the rest of the record stays.
    gone: dict[str, object] = {
        "handle": None,
        "env": {},
        "ended_at": room.clock.now(),
        "expires_at": None,
        "ttl_left": None,
    }
    done = await room.book.move(
        sandbox_id, Step(signal=Signal.TORN_DOWN, actor=actor, reason=sandbox.reason, changes=gone)
    )
    room.activity.forget(sandbox_id)
    return done


async def _mark(
    room: Room, sandbox: Sandbox, *, actor: str, reason: str, check: Callable[[Sandbox], None] | None
) -> None:
    if sandbox.state in _ENDING:
        return
    intent = Step(
        signal=Signal.DESTROY,
        actor=actor,
        reason=reason,
        changes={"expires_at": room.clock.now() + RETRY},
        check=check,
    )
    try:
        await room.book.move(sandbox.id, intent)
    except IllegalTransition:
        # Another destroy came first; it will be joined.
        current = await room.book.find(sandbox.id)
        if current is None or current.state not in _ENDING:
            raise
