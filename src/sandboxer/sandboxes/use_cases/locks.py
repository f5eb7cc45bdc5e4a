"""Locks: what is locked is not destroyed, wiped or unlocked by a request alone.

The edge asks for a second proof first, by the account's other factor. A lock guards against requests, not
against time or money: at the end of its TTL or idle time a locked sandbox is stopped and its disk kept until
it is unlocked; one that was reaped for lack of sats is gone after the retention time, lock or no lock; and a
delegated key that ends takes what it has along.

`Lockable` and `refuse_locked` are for anything with a `locked_at`: snapshots, images and services use them
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from sandboxer.backends.contract import Stops
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, IllegalTransition, NotAvailable
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox

# Of these nothing is left to guard.
_OVER = frozenset({State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED})


class Lockable(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def locked_at(self) -> datetime | None: ...


def refuse_locked(thing: Lockable) -> None:
    """For the transaction of the act itself: the lock may have come after the edge looked."""
    if thing.locked_at is not None:
        raise Conflict(
            why=f"{thing.id} is locked",
            reason="locked",
            hint="Repeat the request, and answer the challenge that it is given.",
        )


def is_guarded(sandbox: Sandbox) -> bool:
    """Locked, and something is left of it."""
    return sandbox.locked_at is not None and sandbox.state not in _OVER


def refuse_guarded(sandbox: Sandbox) -> None:
    if is_guarded(sandbox):
        refuse_locked(sandbox)


async def lock(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Sandbox:
    """Locked already is success."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    if is_guarded(sandbox):
        return sandbox
    if not isinstance(dependencies.backend_of(sandbox), Stops):
        raise NotAvailable(what="lock", why=f"{sandbox.backend} cannot keep a disk without its processes")
    now = dependencies.clock.now()
    return await dependencies.repository.amend(
        sandbox_id,
        kind="sandbox.locked",
        actor=actor_of(caller),
        reason="locked_by_caller",
        decide=lambda current: _locked(current, now),
    )


async def unlock(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Sandbox:
    """The edge has had it confirmed. Unlocked already is success."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    if sandbox.locked_at is None:
        return sandbox
    now = dependencies.clock.now()

    def unlocked(current: Sandbox) -> Mapping[str, object]:
        changes: dict[str, object] = {"locked_at": None}
        if current.state is State.STOPPED:
            # Its retention begins now: unlocking must not be what removes it.
            changes["expires_at"] = now + dependencies.retention
        return changes

    return await dependencies.repository.amend(
        sandbox_id,
        kind="sandbox.unlocked",
        actor=actor_of(caller),
        reason="unlocked_by_caller",
        decide=unlocked,
    )


def _locked(sandbox: Sandbox, now: datetime) -> Mapping[str, object]:
    if sandbox.state in _OVER:
        raise IllegalTransition(signal="lock", state=sandbox.state.value)
    return {"locked_at": sandbox.locked_at or now}
