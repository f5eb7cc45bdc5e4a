"""Create: validate before anything, record, then establish in a task the caller cannot take down."""

from __future__ import annotations

import asyncio

from sandboxer.backends.contract import ChecksHost, Handle, KnowsImages, Snapshots, Volumes
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotAvailable
from sandboxer.kernel.ids import new_id
from sandboxer.sandboxes import requests as planning
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.establish import Stopwatch, establish, ready_step, setup_of
from sandboxer.sandboxes.inspection import fingerprint_of
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.profiles import Profile
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.store.repository import Also

_OVER = frozenset({State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED})


async def create(
    dependencies: SandboxDependencies,
    request: CreateRequest,
    caller: Caller,
    *,
    wait: bool = True,
    also: Also | None = None,
    is_funded: bool = False,
) -> Sandbox:
    """`also` is written with the record, in its transaction: whoever asked twice finds it there.

    `is_funded`: it brings the credit that pays for this.
    """
    watch = Stopwatch()
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    requested = planning.plan(
        request, profile, caller, sandbox_id=new_id("sbx"), now=dependencies.clock.now()
    )
    planning.check_trust(requested, dependencies.trust_max)
    planning.check_backend(profile, await fingerprint_of(dependencies, profile.backend))
    planning.check_promises(profile)
    await dependencies.check_refs(profile, caller.account)
    backend = dependencies.backend_of(requested)
    if requested.origin is not None:
        if not isinstance(backend, Snapshots):
            raise NotAvailable(what="snapshot", why=f"{backend.name} keeps no disks")
        await backend.check_kept(requested.origin)
    elif isinstance(backend, KnowsImages):
        backend.check_image(requested.image)
    if dependencies.warm.count() and not is_funded:
        # Otherwise whoever cannot pay would empty the warm pool: a refused claim ends what it claimed.
        await dependencies.repository.check_start(requested)
    if requested.volumes and not isinstance(backend, Volumes):
        raise NotAvailable(what="volumes", why=f"{backend.name} has none")
    is_plain = profile.setup.is_empty and requested.origin is None and not requested.volumes
    handle = dependencies.warm.claim(requested) if is_plain else None
    if handle is not None:
        return await _claim(dependencies, requested, handle, watch, actor_of(caller), also)
    if isinstance(backend, ChecksHost):
        # A host that can make nothing refuses before there is a record to be failed.
        await backend.check_host()
    return await _make(dependencies, requested, profile, watch, actor_of(caller), also, wait=wait)


async def check(dependencies: SandboxDependencies, request: CreateRequest, caller: Caller) -> None:
    """Raises what one such create would be refused with, as far as that is known before anything is made."""
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    requested = planning.plan(
        request, profile, caller, sandbox_id=new_id("sbx"), now=dependencies.clock.now()
    )
    await dependencies.repository.check_start(requested)


async def recall(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, wait: bool
) -> Sandbox | None:
    """The sandbox that an earlier, unanswered create made; None if it was never ready and is over."""
    if wait:
        await dependencies.operations.free(sandbox_id)
    sandbox = await dependencies.visible(sandbox_id, caller)
    came_to_nothing = sandbox.ready_at is None and sandbox.state in _OVER
    return None if came_to_nothing else sandbox


async def _claim(
    dependencies: SandboxDependencies,
    requested: Sandbox,
    handle: Handle,
    watch: Stopwatch,
    actor: str,
    also: Also | None,
) -> Sandbox:
    """Give a warm sandbox its record; its id was chosen when it was made."""
    sandbox = planning.renamed(requested, handle.sandbox_id)

    async def act() -> Sandbox:
        try:
            watch.lap("claim")
            await dependencies.on_start(sandbox, handle)
            ready = ready_step(dependencies, sandbox, handle, watch, actor, reason="claimed_warm")
            opened = await dependencies.repository.create(sandbox, _placed(sandbox, actor), ready, also=also)
        except BaseException:
            # No record, so nobody would ever remove it before the next start.
            await dependencies.backend_of(sandbox).teardown(sandbox.id)
            raise
        finally:
            dependencies.warm.claimed(sandbox.id)
        # Before anybody can write to it: without its record it must not pass for one that nobody had.
        await dependencies.give_away(sandbox)
        return opened

    return await dependencies.operations.perform(sandbox.id, "create", act)


async def _make(
    dependencies: SandboxDependencies,
    requested: Sandbox,
    profile: Profile,
    watch: Stopwatch,
    actor: str,
    also: Also | None,
    *,
    wait: bool,
) -> Sandbox:
    opened: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()

    async def act() -> Sandbox:
        sandbox = await dependencies.repository.create(requested, _placed(requested, actor), also=also)
        watch.lap("record")
        if not opened.done():
            opened.set_result(sandbox)
        return await establish(
            dependencies, sandbox, setup_of(sandbox, profile), watch, actor=actor, is_new=True
        )

    operation = dependencies.operations.start(requested.id, "create", act)
    if not wait:
        await asyncio.wait((opened, operation.result), return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            return opened.result()
    sandbox: Sandbox = await dependencies.operations.outcome(operation)
    return sandbox


def _placed(sandbox: Sandbox, actor: str) -> Step:
    return Step(signal=Signal.PLACED, actor=actor, reason="placed", data={"backend": sandbox.backend})
