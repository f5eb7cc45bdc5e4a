"""A sandbox's disk is copied, restored and recreated here: the backend acts, then the record follows.

A copy belongs to the package that asked for it (see `artifacts/snapshots`); this one only knows its id.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from sandboxer.backends.contract import Backend, Freezes, Handle, KeptDisk, Snapshots
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, Conflict, IllegalTransition, NotAvailable, Refused
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State, next_state
from sandboxer.sandboxes.reconciler import record_end
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.requests import check_backend
from sandboxer.sandboxes.use_cases.creation import Stopwatch, establish
from sandboxer.sandboxes.use_cases.inspection import fingerprint_of
from sandboxer.sandboxes.use_cases.locks import refuse_guarded
from sandboxer.sandboxes.use_cases.memory import can_be_kept_now, memory_of, remembered
from sandboxer.sandboxes.use_cases.preparation import preparation_of
from sandboxer.sandboxes.use_cases.provision import Making

# The states in which a sandbox has a disk.
_HAVE_DISKS = frozenset({*LIVE, State.STOPPED})


@value_class
class Kept:
    sandbox: Sandbox
    disk: KeptDisk
    took_ms: float


def reconciler_of(backend: Backend | None, name: str) -> Snapshots:
    if not isinstance(backend, Snapshots):
        raise NotAvailable(what="snapshot", why=f"{name} keeps no disks")
    return backend


def check_keepable(dependencies: SandboxDependencies, sandbox: Sandbox, *, memory: bool) -> None:
    """Refuse what could not be kept of it as it is: an illegal state, or memory where that cannot be."""
    if sandbox.state not in _HAVE_DISKS:
        raise IllegalTransition(signal="snapshot", state=sandbox.state.value, reason=sandbox.reason)
    if not memory:
        return
    memory_of(dependencies, sandbox)
    if not can_be_kept_now(sandbox):
        raise IllegalTransition(
            signal="snapshot with memory",
            state=sandbox.state.value,
            reason=sandbox.reason,
            hint="Nothing runs in it: keep its files alone.",
        )


async def keep(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    disk_id: str,
    *,
    memory: bool = False,
) -> Kept:
    """Copy its disk as it is now under a new id. The sandbox may run, be frozen or stopped; with `memory`,
    what runs is kept too.

    Raises IllegalTransition in any other state, and what the backend raises; nothing is left then.
    """
    await dependencies.visible(sandbox_id, caller)

    async def act() -> Kept:
        sandbox = await dependencies.visible(sandbox_id, caller)
        backend = dependencies.backend_of(sandbox)
        check_keepable(dependencies, sandbox, memory=memory)
        if sandbox.handle is None:
            raise Broken(why=f"sandbox {sandbox_id} is {sandbox.state} without a handle")
        began = time.perf_counter()
        if memory:
            disk = await memory_of(dependencies, sandbox).take_with_memory(sandbox.handle, disk_id)
        else:
            disk = await reconciler_of(backend, sandbox.backend).take(sandbox.handle, disk_id)
        return Kept(sandbox=sandbox, disk=disk, took_ms=round((time.perf_counter() - began) * 1e3, 3))

    return await dependencies.operations.perform(sandbox_id, "snapshot", act)


async def restore(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    disk_id: str,
    *,
    despite_lock: bool = False,
) -> Sandbox:
    """Replace its disk by a copy of the kept one. Its processes start again; a stopped one stays stopped.

    What is on the disk now is lost, so a locked sandbox needs `despite_lock`: a second proof allowed it.
    """
    await dependencies.visible(sandbox_id, caller)
    actor = actor_of(caller)

    async def act() -> Sandbox:
        sandbox = await dependencies.visible(sandbox_id, caller)
        runs_after = next_state(sandbox.state, Signal.RESTORE) is not State.STOPPED
        if not despite_lock:
            refuse_guarded(sandbox)
        if sandbox.handle is None:
            raise Broken(why=f"sandbox {sandbox_id} is {sandbox.state} without a handle")
        # Running costs more than being frozen: checked now, and decided in the transaction of the step.
        starts = is_frozen(sandbox) and not sandbox.terms.is_entitled
        if starts:
            await dependencies.repository.check_start(sandbox)
        backend = reconciler_of(dependencies.backend_of(sandbox), sandbox.backend)
        try:
            handle = await backend.restore(sandbox.handle, sandbox.order(), disk_id, start=runs_after)
            if runs_after:
                await dependencies.on_start(sandbox, handle)
        except BaseException:
            await _write_down_what_is_left(dependencies, sandbox, actor)
            raise
        dependencies.activity.touch(sandbox_id)
        step = Step(
            signal=Signal.RESTORE,
            actor=actor,
            reason="restored",
            changes={"handle": handle},
            # What was kept of a stopped one was of the disk that it had.
            decide=lambda one: remembered(one, 0),
            data={"snapshot": disk_id},
            starts=starts,
        )
        try:
            return await dependencies.repository.move(sandbox_id, step)
        except Refused:
            if starts:
                await _freeze_again(dependencies, sandbox, handle, step)
            raise

    return await dependencies.operations.perform(sandbox_id, "restore", act)


async def _freeze_again(
    dependencies: SandboxDependencies, sandbox: Sandbox, handle: Handle, step: Step
) -> None:
    """Freeze it again on the restored disk, because another sandbox got the last sats or slot meanwhile."""
    backend = dependencies.backend_of(sandbox)
    if not isinstance(backend, Freezes):
        raise Broken(why=f"sandbox {sandbox.id} is frozen, and {backend.name} cannot freeze")
    await backend.freeze(handle)
    await dependencies.repository.amend(
        sandbox.id,
        kind="sandbox.restored",
        actor=step.actor,
        reason="kept_frozen",
        decide=lambda _: step.changes,
        data=step.data,
    )


async def _write_down_what_is_left(dependencies: SandboxDependencies, sandbox: Sandbox, actor: str) -> None:
    """Record what is left of it: it may have stopped and not come up again."""
    if sandbox.handle is not None and sandbox.state in LIVE:
        seen = await dependencies.backend_of(sandbox).recover(sandbox.handle)
        await record_end(dependencies, sandbox, seen, actor=actor, by=None)


async def recreate(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, despite_lock: bool = False
) -> Sandbox:
    """Give it a new disk from its image under the same id. The old disk is lost, and the TTL starts again.

    Raises IllegalTransition unless it is ready, active, frozen, stopped or failed. A locked sandbox needs
    `despite_lock`: a second proof allowed it.
    """
    sandbox = await dependencies.visible(sandbox_id, caller)
    profile = dependencies.profiles.get(sandbox.profile)
    dependencies.repository.check_name(sandbox.account, sandbox.name, of=sandbox.id)
    check_backend(profile, await fingerprint_of(dependencies, sandbox.backend))
    # Its network was decided when it was made.
    await dependencies.check_hooks(profile, replace(sandbox, network=None))
    if sandbox.origin is not None:
        # Its new disk would be a copy of the same origin: checked before the old one is removed.
        await reconciler_of(dependencies.backend_of(sandbox), sandbox.backend).check_kept(sandbox.origin)
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
        current = dependencies.repository.peek(sandbox_id)
        again = await dependencies.repository.move(
            sandbox_id,
            Step(
                signal=Signal.RECREATE,
                actor=actor,
                reason="recreate",
                changes=fresh,
                decide=lambda one: remembered(one, 0),
                check=partial(_check_recreate, despite_lock=despite_lock),
                # A sandbox that does not run gave its slot back; one that pays nothing may have begun when
                # nobody paid.
                starts=current is not None and (current.state not in LIVE or current.terms.is_free),
            ),
        )
        await dependencies.backend_of(again).teardown(sandbox_id)
        watch.lap("teardown")
        dependencies.activity.touch(sandbox_id)
        making = Making(
            sandbox=again, order=again.order(), actor=actor, sudo=profile.sudo, nests=profile.nests
        )
        return await establish(dependencies, making, preparation_of(again, profile), watch)

    return await dependencies.operations.perform(sandbox_id, "recreate", act)


def _check_recreate(sandbox: Sandbox, *, despite_lock: bool) -> None:
    if not despite_lock:
        refuse_guarded(sandbox)
    if sandbox.state is State.FAILED and sandbox.volumes:
        raise Conflict(
            why="it let go of its volumes when it failed, and others may have them now",
            reason="volumes_let_go",
            hint="Make a new sandbox with them: POST /v1/sandboxes.",
        )
