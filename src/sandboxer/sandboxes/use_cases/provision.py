"""Has a sandbox made by the first backend of its route that can: within one create, under one id, with one
hold. Who was asked, and what came of it, is kept with the sandbox.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace

from sandboxer.backends.contract import Backend, Handle, Order
from sandboxer.backends.reports import TakesKeys
from sandboxer.hosts.routes.records import Attempt, Candidate, Route
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    EXHAUSTED,
    InsufficientCredit,
    NoCapacity,
    NotAvailable,
    ProvisionFailed,
    Refused,
    SandboxerError,
    Unavailable,
)
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.profiles import Sudo
from sandboxer.sandboxes.records import Sandbox

log = logging.getLogger(__name__)
# How long a create waits for others to leave when the host is full.
LEAVING_S = 5.0
# A backend that failed and does not answer is not waited for: what it still holds is found by the quarantine.
TEARDOWN_S = 2.0


@dataclass(eq=False)
class Making:
    """A sandbox that is being made: who is asked next, and what its disk begins with."""

    sandbox: Sandbox
    order: Order
    actor: str
    # Held until it has started: see `SandboxDependencies.bring`.
    held: object = None
    sudo: Sudo = Sudo.NONE
    nests: bool = False
    # Its files are put in before its workspace is closed: the first start mounts it open.
    is_filled_first: bool = False
    # Those that are asked if the one before fails.
    next: list[Candidate] = field(default_factory=list)
    # Whoever it is made for.
    caller: Caller | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def whole(self) -> Order:
        """What it is once it is ready."""
        return replace(self.order, nests=self.nests)

    @property
    def first(self) -> Order:
        """What is started first: what nobody may write to once it is ready is filled before."""
        return replace(self.whole, folders=self.sandbox.promises.folders(is_ready=not self.is_filled_first))

    @property
    def route(self) -> Route:
        return replace(self.sandbox.route, attempts=tuple(self.attempts))


async def provision(dependencies: SandboxDependencies, making: Making) -> Handle:
    """Return the handle of what was made; `making.sandbox` says by whom. Raises the error of the last one
    that was asked.
    """
    while True:
        backend = dependencies.backend_of(making.sandbox)
        try:
            return await _attempt(dependencies, backend, making)
        except Exception as error:
            if not making.next:
                raise
            why = told(error)
        await _leave(backend, making.sandbox.id)
        await _turn_to_next(dependencies, making, why)


async def _attempt(dependencies: SandboxDependencies, backend: Backend, making: Making) -> Handle:
    observed, started = dependencies.routes.observed, time.perf_counter()
    observed.begin(backend.name)
    try:
        handle = await _made(dependencies, backend, making)
    except BaseException as error:
        if isinstance(error, Exception) and is_backends(error):
            observed.failed(backend.name, told(error), stranger=await _stranger(dependencies, making))
        else:
            observed.abandoned(backend.name)
        _note(making, backend, started, is_made=False, reason=told(error))
        raise
    took_ms = _note(making, backend, started, is_made=True, reason="it made it")
    observed.made(backend.name, took_ms)
    return handle


async def _stranger(dependencies: SandboxDependencies, making: Making) -> str | None:
    """Return the account that it is made for, if it is a stranger's."""
    caller = making.caller
    return caller.account if caller and await dependencies.routes.is_stranger(caller) else None


async def _made(dependencies: SandboxDependencies, backend: Backend, making: Making) -> Handle:
    try:
        return await _ask(dependencies, backend, making)
    except NoCapacity:
        # Those whose destroy was answered before they were gone will have left their place in a moment; where
        # somebody else may make it, nobody waits for that.
        if making.next or not await dependencies.operations.settled("destroy", within_s=LEAVING_S):
            raise
        return await _ask(dependencies, backend, making)


async def _ask(dependencies: SandboxDependencies, backend: Backend, making: Making) -> Handle:
    name = making.sandbox.route.key_name
    if name is None:
        return await backend.provision(making.first)
    if not isinstance(backend, TakesKeys):
        raise NotAvailable(what=f"backend {backend.name}", why="it takes no key of an account")
    key = await dependencies.routes.resolve_key(making.sandbox.account, name)
    return await backend.provision_with_key(making.first, key)


async def _turn_to_next(dependencies: SandboxDependencies, making: Making, why: str) -> None:
    """Let the next that its account can pay for have it. Raises InsufficientCredit if there is none."""
    before = making.sandbox
    while making.sandbox is before:
        chosen, *making.next = making.next
        route = replace(making.route, basis=chosen.basis, key_name=chosen.key_name)
        log.warning("%s could not make %s (%s): %s is asked", before.backend, before.id, why, chosen.backend)
        try:
            making.sandbox = await dependencies.repository.reroute(
                before, route, chosen.backend, actor=making.actor, why=why
            )
        except InsufficientCredit as error:
            if not making.next:
                raise
            making.attempts.append(
                Attempt(backend=chosen.backend, is_made=False, reason=str(error), took_ms=0)
            )
    # Let go first: what it holds would count as placed, and the next disk has none of it.
    making.held = None
    making.order, making.held = dependencies.bring(
        making.sandbox.order(), making.sandbox.backend, making.sudo
    )


async def _leave(backend: Backend, sandbox_id: str) -> None:
    """Remove what a backend that failed may have left, in spite of its promise."""
    try:
        async with asyncio.timeout(TEARDOWN_S):
            await backend.teardown(sandbox_id)
    except Exception:
        log.exception("could not undo %s in %s", sandbox_id, backend.name)


def _note(making: Making, backend: Backend, started: float, *, is_made: bool, reason: str) -> float:
    took_ms = round((time.perf_counter() - started) * 1000, 3)
    making.attempts.append(
        Attempt(backend=backend.name, is_made=is_made, reason=reason[:500], took_ms=took_ms)
    )
    return took_ms


def is_backends(error: Exception) -> bool:
    """Say whether a backend failed by itself: not for what was asked of it, nor for want of room."""
    if isinstance(error, OSError):
        # One that names no such reason is a backend that cannot be reached.
        return error.errno not in EXHAUSTED
    return not (isinstance(error, Refused) or is_hosts(error))


def is_hosts(error: BaseException) -> bool:
    """Return whether the host had no room for it, which is no fault of this sandbox."""
    if isinstance(error, NoCapacity | OSError):
        return True
    return isinstance(error, ProvisionFailed) and error.facts.get("errno") in EXHAUSTED


def told(error: BaseException) -> str:
    """Say what went wrong in words for tenants: without paths of this host."""
    return blame(error)[1]


def blame(error: BaseException) -> tuple[str, str]:
    """Return reason and words for the record. Tenants read it, so it must not contain paths of this host."""
    if isinstance(error, SandboxerError):
        return error.code, str(error)
    if isinstance(error, OSError):
        return Unavailable.code, f"the host could not do it: {error.strerror}"
    return "interrupted", "it was cut short"
