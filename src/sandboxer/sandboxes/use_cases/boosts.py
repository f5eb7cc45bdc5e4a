"""A boost gives a sandbox more CPUs and memory for a while, without a restart; it is paid for while it lasts.

First the money is checked, then the backend acts, then the record follows, and the charge changes in the
transaction of the record. The record keeps what unboosting goes back to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sandboxer.backends.contract import Resizes, Resources
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    Broken,
    Forbidden,
    IllegalTransition,
    InsufficientCredit,
    InvalidRequest,
    NotAvailable,
)
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import excess
from sandboxer.sandboxes.records import Sandbox, Unboosted
from sandboxer.sandboxes.terms import Terms

MEMORY_MB_PER_VCPU = 2048
_RUNNING = frozenset({State.READY, State.ACTIVE})


def boosted(had: Resources, vcpus: int) -> Resources:
    """Return the boosted resources: each CPU brings its memory, and nothing shrinks.

    Raises InvalidRequest.
    """
    if vcpus <= had.vcpus:
        raise InvalidRequest(
            field="vcpus", why=f"{vcpus} is not more than the {had.vcpus:g} that it has without a boost"
        )
    return replace(had, vcpus=float(vcpus), memory_mb=max(had.memory_mb, vcpus * MEMORY_MB_PER_VCPU))


async def boost(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, *, vcpus: int) -> Sandbox:
    """Boost a running sandbox to this many CPUs, also if it is boosted already; charged from now on."""
    await dependencies.visible(sandbox_id, caller)

    async def operation() -> Sandbox:
        sandbox = await _running(dependencies, sandbox_id, caller, "boost")
        resources = boosted(_base(sandbox).resources, vcpus)
        _check_profile(dependencies, sandbox, resources)
        terms = await dependencies.repository.resized(replace(sandbox, resources=resources))

        def decide(now: Sandbox) -> Mapping[str, object]:
            # An extension may have used a quote meanwhile; it is kept for when the boost is over.
            anew = replace(terms, quote_id=now.terms.quote_id)
            return {"resources": resources, "terms": anew, "boosted_from": _base(now)}

        return await _change(dependencies, sandbox, resources, decide, caller, "boost")

    return await dependencies.operations.perform(sandbox_id, "boost", operation)


async def unboost(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Sandbox:
    """End a boost; a sandbox without one is success.

    Raises Conflict if it uses more memory than it would have.
    """
    await dependencies.visible(sandbox_id, caller)

    async def operation() -> Sandbox:
        sandbox = await _running(dependencies, sandbox_id, caller, "unboost")
        if (base := sandbox.boosted_from) is None:
            return sandbox
        terms = await _former_terms(dependencies, sandbox, base)

        def decide(now: Sandbox) -> Mapping[str, object]:
            # A quote that it used meanwhile stays its quote; the one before does not come back.
            anew = replace(terms, keeps_free=now.terms.keeps_free, quote_id=now.terms.quote_id)
            return {"resources": base.resources, "terms": anew, "boosted_from": None}

        return await _change(dependencies, sandbox, base.resources, decide, caller, "unboost")

    return await dependencies.operations.perform(sandbox_id, "unboost", operation)


async def _former_terms(dependencies: SandboxDependencies, sandbox: Sandbox, base: Unboosted) -> Terms:
    """Return the rates it was promised, with a slot of the tier if one fits now.

    Never refused, as it is less.
    """
    try:
        anew = await dependencies.repository.resized(replace(sandbox, resources=base.resources))
    except (InsufficientCredit, Forbidden):
        anew = sandbox.terms
    return replace(base.terms, is_entitled=anew.is_entitled)


def _base(sandbox: Sandbox) -> Unboosted:
    """Return what unboosting goes back to."""
    return sandbox.boosted_from or Unboosted(resources=sandbox.resources, terms=sandbox.terms)


async def _running(
    dependencies: SandboxDependencies, sandbox_id: str, caller: Caller, signal: str
) -> Sandbox:
    sandbox = await dependencies.visible(sandbox_id, caller)
    if sandbox.state not in _RUNNING:
        raise IllegalTransition(signal=signal, state=sandbox.state.value, reason=sandbox.reason)
    return sandbox


async def _change(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    resources: Resources,
    decide: Callable[[Sandbox], Mapping[str, object]],
    caller: Caller,
    name: str,
) -> Sandbox:
    backend = dependencies.backend_of(sandbox)
    if not isinstance(backend, Resizes):
        raise NotAvailable(what="boost", why=f"{backend.name} cannot change a running sandbox's limits")
    if sandbox.handle is None:
        raise Broken(why=f"sandbox {sandbox.id} is {sandbox.state} without a handle")
    await backend.resize(sandbox.handle, resources)
    try:
        return await dependencies.repository.amend(
            sandbox.id,
            kind=f"sandbox.{name}ed",
            actor=actor_of(caller),
            reason=f"{name}_by_caller",
            decide=decide,
            data={"vcpus": resources.vcpus, "memory_mb": resources.memory_mb},
        )
    except BaseException:
        await backend.resize(sandbox.handle, sandbox.resources)
        raise


def _check_profile(dependencies: SandboxDependencies, sandbox: Sandbox, resources: Resources) -> None:
    if (profile := dependencies.profiles.find(sandbox.profile)) is None:
        raise NotAvailable(what="boost", why=f"{sandbox.profile} is not in the catalogue any more")
    for name in excess(resources, profile.resources_max):
        most = getattr(profile.resources_max, name)
        raise InvalidRequest(
            field="vcpus",
            why=f"{getattr(resources, name):g} {name} is more than {profile.id} allows ({most:g})",
        )
