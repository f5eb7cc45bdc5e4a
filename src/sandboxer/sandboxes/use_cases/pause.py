"""Stop, resume, freeze and thaw: the backend acts first, then the record follows.

After a crash in between, `reconcile` sees the difference and repairs it. Asking for the state that a sandbox
is in already is success. Whether it may run again is checked before the backend acts and decided in the
transaction of the step: if another sandbox got the last sats or slot meanwhile, the act is undone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from sandboxer.backends.contract import Freezes, Handle, Stops
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, Conflict, NotAvailable, Refused, or_not_found
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import Signal, State, next_state
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.memory import remembered, stop_as_before, stop_keeping
from sandboxer.sandboxes.use_cases.preparation import bring_stack_up

Change = Callable[[Sandbox], Awaitable[Mapping[str, object]]]
Undo = Callable[[Sandbox], Awaitable[None]]


async def freeze(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Sandbox:
    """Pause every process. Files stay readable; TTL goes on, idle time does not."""

    async def act(sandbox: Sandbox) -> Mapping[str, object]:
        await _freezer(dependencies, sandbox).freeze(_handle(sandbox))
        return {}

    return await _perform(dependencies, sandbox_id, caller, Signal.FREEZE, State.FROZEN, act)


async def thaw(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Sandbox:
    async def act(sandbox: Sandbox) -> Mapping[str, object]:
        if _pays_to_thaw(sandbox):
            await dependencies.repository.check_start(sandbox)
        await _freezer(dependencies, sandbox).thaw(_handle(sandbox))
        dependencies.activity.touch(sandbox_id)
        return {}

    async def undo(sandbox: Sandbox) -> None:
        await _freezer(dependencies, sandbox).freeze(_handle(sandbox))

    return await _perform(
        dependencies, sandbox_id, caller, Signal.THAW, State.READY, act, starts=_pays_to_thaw, undo=undo
    )


async def stop(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    *,
    reason: str | None = None,
    memory: bool = False,
) -> Sandbox:
    """End all processes, keep the disk; what is left of the TTL is kept too. With `memory`, what runs goes on
    when it is resumed; without, what was kept of one that is stopped ends too.

    Raises NotAvailable and Conflict where what runs cannot be kept; nothing is ended then.
    """
    memory_mb = 0

    async def act(sandbox: Sandbox) -> Mapping[str, object]:
        nonlocal memory_mb
        if memory:
            memory_mb = await stop_keeping(dependencies, sandbox, _handle(sandbox))
        else:
            await _stopper(dependencies, sandbox).stop(_handle(sandbox))
        stopped = replace(sandbox, **remembered(sandbox, memory_mb))  # type: ignore[arg-type]
        kept = await dependencies.repository.kept_for(stopped, dependencies.retention)
        return stopped_changes(sandbox, dependencies.clock.now(), kept)

    stopped = await _perform(
        dependencies,
        sandbox_id,
        caller,
        Signal.STOP,
        State.STOPPED,
        act,
        reason,
        decide=lambda one: remembered(one, memory_mb),
    )
    if memory or not stopped.terms.memory_mb or stopped.state is not State.STOPPED:
        return stopped
    return await _end_what_was_kept(dependencies, sandbox_id, actor_of(caller))


async def _end_what_was_kept(dependencies: SandboxDependencies, sandbox_id: str, actor: str) -> Sandbox:
    """Let one that is stopped begin anew when it is resumed."""

    async def operation() -> Sandbox:
        sandbox = or_not_found(dependencies.repository.peek(sandbox_id), what="sandbox", id=sandbox_id)
        if sandbox.state is not State.STOPPED:
            return sandbox
        await _stopper(dependencies, sandbox).stop(_handle(sandbox))
        return await dependencies.repository.amend(
            sandbox_id,
            kind="sandbox.terms_changed",
            actor=actor,
            reason="memory_ended",
            decide=lambda one: remembered(one, 0),
        )

    return await dependencies.operations.perform(sandbox_id, "stop", operation)


async def resume(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, reason: str = "resume_by_caller"
) -> Sandbox:
    async def act(sandbox: Sandbox) -> Mapping[str, object]:
        _refuse_spent(sandbox)
        await dependencies.repository.check_start(sandbox)
        handle = await _start_again(dependencies, sandbox)
        dependencies.activity.touch(sandbox_id)
        return resumed_changes(sandbox, handle, dependencies.clock.now())

    async def undo(sandbox: Sandbox) -> None:
        await stop_as_before(dependencies, sandbox, _handle(sandbox))

    return await _perform(
        dependencies,
        sandbox_id,
        caller,
        Signal.RESUME,
        State.READY,
        act,
        reason,
        starts=lambda _: True,
        undo=undo,
        decide=lambda one: remembered(one, 0),
    )


async def _start_again(dependencies: SandboxDependencies, sandbox: Sandbox) -> Handle:
    """Start it again with its start hooks; if one of them fails, it is stopped as before."""
    stopper = _stopper(dependencies, sandbox)
    handle = await stopper.resume(_handle(sandbox), sandbox.order())
    try:
        await dependencies.on_start(sandbox, handle)
        await bring_stack_up(dependencies, handle, sandbox)
    except BaseException:
        await stop_as_before(dependencies, sandbox, handle)
        raise
    return handle


def stopped_changes(sandbox: Sandbox, now: datetime, retention: timedelta) -> Mapping[str, object]:
    """Return the changes of the record when it stops: the TTL stops counting, and the disk's retention
    starts.
    """
    left = sandbox.ttl if sandbox.expires_at is None else max(timedelta(0), sandbox.expires_at - now)
    return {"expires_at": now + retention, "ttl_left": left}


def resumed_changes(sandbox: Sandbox, handle: Handle, now: datetime) -> Mapping[str, object]:
    left = sandbox.ttl if sandbox.ttl_left is None else sandbox.ttl_left
    return {"handle": handle, "expires_at": now + left, "ttl_left": None}


async def _perform(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    signal: Signal,
    target: State,
    act: Change,
    reason: str | None = None,
    *,
    starts: Callable[[Sandbox], bool] = lambda _: False,
    undo: Undo | None = None,
    decide: Callable[[Sandbox], Mapping[str, object]] | None = None,
) -> Sandbox:
    await dependencies.visible(sandbox_id, caller)
    actor = actor_of(caller)

    async def operation() -> Sandbox:
        # Loaded again: another operation may have ended while this one waited for its turn.
        sandbox = await dependencies.visible(sandbox_id, caller)
        if _is_there(sandbox.state, target):
            return sandbox
        next_state(sandbox.state, signal)
        changes = await act(sandbox)
        why = reason or f"{signal.value}_by_caller"
        step = Step(
            signal=signal, actor=actor, reason=why, changes=changes, decide=decide, starts=starts(sandbox)
        )
        try:
            return await dependencies.repository.move(sandbox_id, step)
        except Refused:
            if undo is not None:
                await undo(replace(sandbox, **changes))  # type: ignore[arg-type]
            raise

    return await dependencies.operations.perform(sandbox_id, signal.value, operation)


def _pays_to_thaw(sandbox: Sandbox) -> bool:
    """Return whether thawing must be paid for: otherwise an account in debt would get one grace after the
    other.
    """
    return not sandbox.terms.is_entitled


def _refuse_spent(sandbox: Sandbox) -> None:
    """Raise Conflict if nothing is left of its TTL: it would be stopped again at once."""
    if sandbox.ttl_left == timedelta(0):
        raise Conflict(
            why="nothing is left of its TTL",
            reason="no_ttl_left",
            hint=f"Give it more time first: PATCH /v1/sandboxes/{sandbox.id}/ttl.",
        )


def _is_there(state: State, target: State) -> bool:
    return state is target or (target is State.READY and state is State.ACTIVE)


def _handle(sandbox: Sandbox) -> Handle:
    if sandbox.handle is None:
        raise Broken(why=f"sandbox {sandbox.id} is {sandbox.state} without a handle")
    return sandbox.handle


def _freezer(dependencies: SandboxDependencies, sandbox: Sandbox) -> Freezes:
    backend = dependencies.backend_of(sandbox)
    if not isinstance(backend, Freezes):
        raise NotAvailable(what="freeze", why=f"{backend.name} cannot freeze")
    return backend


def _stopper(dependencies: SandboxDependencies, sandbox: Sandbox) -> Stops:
    backend = dependencies.backend_of(sandbox)
    if not isinstance(backend, Stops):
        raise NotAvailable(what="stop", why=f"{backend.name} cannot stop and resume")
    return backend
