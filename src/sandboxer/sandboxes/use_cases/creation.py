"""Create: the request is validated before anything, recorded, then established in a task of the platform's
own.

Establishing leads from `provisioning` to `ready`: the backend makes it, the profile's setup runs in it, the
record says so. That is slow, and no transaction is open meanwhile. If anything goes wrong, everything is
undone and the record says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sandboxer.backends.contract import (
    Backend,
    ChecksHost,
    Handle,
    KnowsImages,
    Snapshots,
    Volumes,
)
from sandboxer.backends.shared import MountsFolders, StandsElsewhere
from sandboxer.hosts.routes.explanation import route_of
from sandboxer.hosts.routes.policy import Decision
from sandboxer.hosts.routes.records import Route
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    IllegalTransition,
    NotAvailable,
    SandboxerError,
    Unavailable,
)
from sandboxer.kernel.values import new_id
from sandboxer.sandboxes import requests as planning
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import LIVE, OVER, Signal, State
from sandboxer.sandboxes.operations import Operation
from sandboxer.sandboxes.profiles import Profile
from sandboxer.sandboxes.promises import LOCAL
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.routes import refusal_of
from sandboxer.sandboxes.use_cases.preparation import (
    Preparation,
    bring_stack_up,
    preparation_of,
    prepare,
    start_closed,
)
from sandboxer.sandboxes.use_cases.provision import Making, blame, is_hosts, provision
from sandboxer.sandboxes.use_cases.routes import choose
from sandboxer.sandboxes.warm import Spare
from sandboxer.store.repository import Also


async def create(
    dependencies: SandboxDependencies,
    request: CreateRequest,
    caller: Caller,
    *,
    wait: bool = True,
    also: Also | None = None,
) -> Sandbox:
    """Create a sandbox and wait until it is ready, or only until it is recorded.

    `also` is written in the transaction of the record, so that a repeated request finds it there.
    """
    watch = Stopwatch()
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    requested = _planned(dependencies, request, profile, caller)
    planning.check_trust(requested, profile, dependencies.trust_max)
    dependencies.repository.check_name(caller.account, requested.name)
    if profile.nests:
        planning.check_maker(caller, dependencies.makers, profile.id)
    decision = await choose(dependencies, requested, request, profile, caller)
    if not decision.taken:
        planning.check_served(caller, profile, dependencies.backends.get(profile.backend))
        known = dependencies.known_fingerprints.get(profile.backend)
        raise refusal_of(decision, profile, request, known)
    await dependencies.check_hooks(profile, requested)
    requested, decision = await _asked_first(dependencies, requested, decision, _check_makes)
    if requested.backend != profile.backend:
        placed = _planned(dependencies, request, profile, caller, stands_on=requested.backend)
        promises = replace(requested.promises, answered=placed.promises.answered)
        requested = replace(requested, promises=promises)
    is_plain = preparation_of(requested, profile).is_empty and requested.origin is None
    is_plain = is_plain and not (requested.volumes or profile.nests or requested.order().folders)
    is_plain = is_plain and not (requested.route.basis.gpus or requested.route.key_name)
    spare = dependencies.warm.claim(requested, profile.sudo) if is_plain else None
    if spare is not None:
        return await _claim(dependencies, requested, spare, watch, actor_of(caller), also)
    # A host that can make nothing refuses now, before there is a record that would fail.
    requested, decision = await _asked_first(dependencies, requested, decision, _check_host)
    making = Making(
        sandbox=requested,
        order=requested.order(),
        actor=actor_of(caller),
        sudo=profile.sudo,
        nests=profile.nests,
        next=list(decision.taken[1:]),
        caller=caller,
    )
    return await _make(dependencies, making, profile, watch, also, wait=wait)


async def _asked_first(
    dependencies: SandboxDependencies,
    requested: Sandbox,
    decision: Decision,
    check: Callable[[Backend, Sandbox], Awaitable[None]],
) -> tuple[Sandbox, Decision]:
    """Return the record with the first backend of the decision that passes, and the decision without those
    that do not. Raises what the first of them says if none is left.
    """
    refused: SandboxerError | None = None
    for candidate in tuple(decision.taken):
        placed = replace(requested, backend=candidate.backend)
        try:
            await check(dependencies.backend_of(placed), placed)
        except SandboxerError as error:
            refused = refused or error
            decision = decision.without(candidate, str(error))
    if not decision.taken:
        assert refused is not None
        raise refused
    first = decision.taken[0]
    route = replace(route_of(decision), basis=first.basis, key_name=first.key_name)
    return replace(requested, backend=first.backend, route=route), decision


async def _check_host(backend: Backend, requested: Sandbox) -> None:
    del requested
    if isinstance(backend, ChecksHost):
        await backend.check_host()


async def _check_makes(backend: Backend, requested: Sandbox) -> None:
    """Raise what refuses to make this sandbox on this backend."""
    _check_workspace(backend, requested)
    if requested.origin is not None:
        if not isinstance(backend, Snapshots):
            raise NotAvailable(what="snapshot", why=f"{backend.name} keeps no disks")
        await backend.check_kept(requested.origin)
    elif isinstance(backend, KnowsImages):
        backend.check_image(requested.image)
    if requested.volumes and not isinstance(backend, Volumes):
        raise NotAvailable(what="volumes", why=f"{backend.name} has none")


def _planned(
    dependencies: SandboxDependencies,
    request: CreateRequest,
    profile: Profile,
    caller: Caller,
    *,
    stands_on: str | None = None,
) -> Sandbox:
    return planning.plan(
        request,
        profile,
        caller,
        sandbox_id=new_id("sbx"),
        now=dependencies.clock.now(),
        host_names=_names_of_place(dependencies, stands_on or profile.backend),
    )


def _names_of_place(dependencies: SandboxDependencies, backend_name: str) -> tuple[str, ...]:
    backend = dependencies.backends.get(backend_name)
    if isinstance(backend, StandsElsewhere) and (place := backend.place) is not None:
        return (place,)
    return (LOCAL, *dependencies.host_names)


def _check_workspace(backend: Backend, requested: Sandbox) -> None:
    """Raise NotAvailable where nobody could be kept from writing to the workspace."""
    if not (folders := requested.order().folders):
        return
    if not isinstance(backend, MountsFolders):
        access = requested.promises.workspace_access.value
        raise NotAvailable(
            what=f"workspace.access `{access}`",
            why=f"{backend.name} cannot keep root inside from writing to a folder",
            promise="workspace.access",
            hint="Ask for `rw`, attach a volume with mode `ro`, or choose a profile of another backend.",
        )
    backend.check_folders(folders)


def sharing_of(dependencies: SandboxDependencies, request: CreateRequest, caller: Caller) -> str | None:
    """Return what stands for those whom this request names to share a sandbox; None: it is nobody else's."""
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    return _planned(dependencies, request, profile, caller).promises.shared_by


async def find_shared(
    dependencies: SandboxDependencies, shared_by: str, caller: Caller, *, wait: bool = True
) -> Sandbox | None:
    """Return the sandbox that these share; None: there is none that lives."""
    for one in dependencies.repository.living(caller.account):
        if one.promises.shared_by == shared_by and one.state in SHAREABLE:
            found = await recall(dependencies, one.id, caller, wait=wait)
            # It may have ended while this waited for it.
            if found is not None and found.state in SHAREABLE:
                return found
    return None


async def check_create(dependencies: SandboxDependencies, request: CreateRequest, caller: Caller) -> None:
    """Raise what would refuse such a create, as far as that is known before anything is made."""
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    await dependencies.repository.check_start(_planned(dependencies, request, profile, caller))


def check_image(dependencies: SandboxDependencies, request: CreateRequest) -> None:
    """Raise what refuses the image of the host that such a create would begin from."""
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    backend = dependencies.backends.get(profile.backend)
    if request.origin is None and isinstance(backend, KnowsImages):
        backend.check_image(request.image or profile.image)


async def recall(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, wait: bool = True
) -> Sandbox | None:
    """Return the sandbox that an earlier create made whose answer was lost; None if that create failed."""
    if wait:
        await dependencies.operations.free(sandbox_id)
    sandbox = await dependencies.visible(sandbox_id, caller)
    came_to_nothing = sandbox.ready_at is None and sandbox.state in OVER
    return None if came_to_nothing else sandbox


async def _claim(
    dependencies: SandboxDependencies,
    requested: Sandbox,
    spare: Spare,
    watch: Stopwatch,
    actor: str,
    also: Also | None,
) -> Sandbox:
    """Give a warm sandbox a record under the id that it was made with, and then what is its owner's."""
    sandbox = planning.renamed(requested, spare.handle.sandbox_id)
    backend = dependencies.backend_of(sandbox)
    begun: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()

    async def act() -> Sandbox:
        watch.lap("claim")
        ready = ready_step(dependencies, sandbox, spare.handle, watch, actor, reason="claimed_warm")
        try:
            opened = await dependencies.repository.create(sandbox, _placed(sandbox, actor), ready, also=also)
        except BaseException as error:
            # One that was only refused is as it was; of others nobody knows whether they have a record.
            is_refused = isinstance(error, SandboxerError) and not isinstance(error, Unavailable)
            if not (is_refused and dependencies.warm.give_back(spare)):
                # Nobody would remove it before the next start.
                await backend.teardown(sandbox.id)
            raise
        finally:
            dependencies.warm.claimed(sandbox.id)
        try:
            await dependencies.on_start(opened, spare.handle, spare.rests)
        except BaseException as error:
            await _undo(dependencies, backend, opened, error, actor, signal=Signal.LOST, is_new=True)
            raise
        if not begun.done():
            begun.set_result(opened)
        # It must not be taken for an unused spare. A start that still finds the mark looks for a record.
        await dependencies.give_away(sandbox)
        return opened

    return await _begun(dependencies, dependencies.operations.start(sandbox.id, "claim", act), begun)


async def _make(
    dependencies: SandboxDependencies,
    making: Making,
    profile: Profile,
    watch: Stopwatch,
    also: Also | None,
    *,
    wait: bool,
) -> Sandbox:
    opened: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
    requested, actor = making.sandbox, making.actor

    async def act() -> Sandbox:
        # Before the record, which keeps what they made for it.
        making.order, making.held = dependencies.bring(requested.order(), requested.backend, profile.sudo)
        try:
            sandbox = await dependencies.repository.create(requested, _placed(requested, actor), also=also)
            watch.lap("record")
            if not opened.done():
                opened.set_result(sandbox)
            making.sandbox = sandbox
            return await establish(dependencies, making, preparation_of(sandbox, profile), watch, is_new=True)
        finally:
            # The traceback of an error would hold it on, and another disk of this id has no such files.
            making.held = None

    operation = dependencies.operations.start(requested.id, "create", act)
    if not wait:
        return await _begun(dependencies, operation, opened)
    sandbox: Sandbox = await dependencies.operations.outcome(operation)
    return sandbox


async def _begun(
    dependencies: SandboxDependencies, operation: Operation, begun: asyncio.Future[Sandbox]
) -> Sandbox:
    """Return the record as soon as the operation says so, which goes on; raise what it failed with."""
    await asyncio.wait((begun, operation.result), return_when=asyncio.FIRST_COMPLETED)
    if begun.done():
        return begun.result()
    sandbox: Sandbox = await dependencies.operations.outcome(operation)
    return sandbox


def _placed(sandbox: Sandbox, actor: str) -> Step:
    return Step(signal=Signal.PLACED, actor=actor, reason="placed", data={"backend": sandbox.backend})


log = logging.getLogger(__name__)
# States in which another create can be answered with a sandbox.
SHAREABLE = LIVE | {State.REQUESTED, State.PROVISIONING}
# The record of a sandbox that the host had no room for stays so long: enough to read why.
REFUSED_KEPT = timedelta(minutes=10)


@dataclass
class Stopwatch:
    """Measures how long each step took, in milliseconds."""

    started: float = field(default_factory=time.perf_counter)
    steps_ms: dict[str, float] = field(default_factory=dict)

    def lap(self, step: str) -> None:
        spent = (time.perf_counter() - self.started) * 1000 - sum(self.steps_ms.values())
        self.steps_ms[step] = round(spent, 3)

    def total(self) -> dict[str, float]:
        return {**self.steps_ms, "total": round((time.perf_counter() - self.started) * 1000, 3)}


async def establish(
    dependencies: SandboxDependencies,
    making: Making,
    setup: Preparation,
    watch: Stopwatch,
    *,
    is_new: bool = False,
) -> Sandbox:
    """Make the sandbox and bring it to `ready`. When that fails, everything is undone and the record is
    `failed`.

    `is_new` says that nobody has had it before, so its record is kept shortly if the host had no room.
    """
    try:
        making.is_filled_first = bool(making.order.folders) and not setup.is_empty
        handle = await provision(dependencies, making)
        sandbox = making.sandbox
        watch.lap("provision")
        await dependencies.on_start(sandbox, handle)
        watch.lap("hooks")
        report = await prepare(dependencies, handle, sandbox, setup)
        if not setup.is_empty:
            watch.lap("setup")
        if await bring_stack_up(dependencies, handle, sandbox):
            watch.lap("stack")
        if making.first.folders != making.whole.folders:
            backend = dependencies.backend_of(sandbox)
            handle = await start_closed(dependencies, backend, sandbox, handle, making.whole)
            watch.lap("closed")
        ready = ready_step(dependencies, sandbox, handle, watch, making.actor, report=report)
        ready = replace(ready, changes={**ready.changes, "route": making.route})
        return await dependencies.repository.move(sandbox.id, ready)
    except BaseException as error:
        # Also when cancelled: a destroy ends a create by cancelling it.
        backend = dependencies.backend_of(making.sandbox)
        await _undo(
            dependencies, backend, making.sandbox, error, making.actor, is_new=is_new, route=making.route
        )
        raise


def ready_step(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    handle: Handle,
    watch: Stopwatch,
    actor: str,
    *,
    report: Mapping[str, object] | None = None,
    reason: str = "probe_passed",
) -> Step:
    """Return the step to `ready`, from which the TTL counts.

    `timings_ms` cannot contain this write itself.
    """
    now = dependencies.clock.now()
    timings = watch.total()
    changes: dict[str, object] = {
        "handle": handle,
        "ready_at": now,
        "expires_at": now + sandbox.ttl,
        "ttl_left": None,
        "timings_ms": timings,
        "report": report,
    }
    return Step(
        signal=Signal.PROBE_PASSED, actor=actor, reason=reason, changes=changes, data={"timings_ms": timings}
    )


async def _undo(
    dependencies: SandboxDependencies,
    backend: Backend,
    sandbox: Sandbox,
    error: BaseException,
    actor: str,
    *,
    is_new: bool,
    signal: Signal = Signal.FAIL,
    route: Route | None = None,
) -> None:
    if isinstance(error, SandboxerError):
        error.facts.setdefault("sandbox_id", sandbox.id)
    try:
        await backend.teardown(sandbox.id)
    except Exception:
        # A failed sandbox that still holds something is stale: see `stale`.
        log.exception("could not undo %s", sandbox.id)
    reason, why = blame(error)
    # Repeated creates on a full host would leave a record each time.
    kept = min(dependencies.retention, REFUSED_KEPT) if is_new and is_hosts(error) else dependencies.retention
    failed = Step(
        signal=signal,
        actor=actor,
        reason=reason,
        changes={
            "handle": None,
            "expires_at": dependencies.clock.now() + kept,
            **({} if route is None else {"route": route}),
        },
        data={"why": why[:500]},
    )
    try:
        await dependencies.repository.move(sandbox.id, failed)
    except IllegalTransition:
        # A destroy came first and owns the record now.
        return
