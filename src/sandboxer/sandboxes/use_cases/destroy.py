"""Destroying a sandbox is idempotent, safe from many callers at once, and allowed in every state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, IllegalTransition
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.locks import refuse_guarded

# When a backend fails to remove a sandbox, the timer tries again after this long.
RETRY = timedelta(seconds=30)
_ENDING = frozenset({State.DESTROYING, State.DESTROYED})


async def destroy(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, despite_lock: bool = False
) -> Sandbox:
    """Destroy a sandbox. `despite_lock` says that a second proof allowed it, or that its key is ending."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    check = None if despite_lock else refuse_guarded
    return await remove(
        dependencies, sandbox, actor=actor_of(caller), reason="destroyed_by_caller", check=check
    )


async def remove(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    *,
    actor: str,
    reason: str,
    check: Callable[[Sandbox], None] | None = None,
) -> Sandbox:
    """Bring it to `destroyed`. The intent is recorded first, so that a start finishes what a crash
    interrupted.

    `check` may refuse it in the transaction that records the intent.
    """
    if sandbox.state is State.DESTROYED:
        return sandbox
    await _mark(dependencies, sandbox, actor=actor, reason=reason, check=check)

    async def act() -> Sandbox:
        return await finish(dependencies, sandbox.id, actor=actor)

    return await dependencies.operations.preempt(sandbox.id, "destroy", act)


async def finish(dependencies: SandboxDependencies, sandbox_id: str, *, actor: str) -> Sandbox:
    """Tear down a sandbox that is `destroying`. Destroyed already is success."""
    sandbox = await dependencies.repository.find(sandbox_id)
    if sandbox is None:
        raise Broken(why=f"sandbox {sandbox_id} is being destroyed without a record")
    if sandbox.state is State.DESTROYED:
        return sandbox
    await dependencies.backend_of(sandbox).teardown(sandbox_id)
    # Its environment may hold secrets and is erased; the rest of the record stays.
    gone: dict[str, object] = {
        "handle": None,
        "env": {},
        "ended_at": dependencies.clock.now(),
        "expires_at": None,
        "ttl_left": None,
    }
    done = await dependencies.repository.move(
        sandbox_id, Step(signal=Signal.TORN_DOWN, actor=actor, reason=sandbox.reason, changes=gone)
    )
    dependencies.activity.forget(sandbox_id)
    return done


async def _mark(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    *,
    actor: str,
    reason: str,
    check: Callable[[Sandbox], None] | None,
) -> None:
    if sandbox.state in _ENDING:
        return
    intent = Step(
        signal=Signal.DESTROY,
        actor=actor,
        reason=reason,
        changes={"expires_at": dependencies.clock.now() + RETRY},
        check=check,
    )
    try:
        await dependencies.repository.move(sandbox.id, intent)
    except IllegalTransition:
        # Another destroy came first; it will be joined.
        current = await dependencies.repository.find(sandbox.id)
        if current is None or current.state not in _ENDING:
            raise
