"""A lock keeps requests from destroying, wiping or unlocking something without a second proof.

The edge asks for that proof, by the account's other factor. A lock does not protect against time or money: at
the end of its TTL or idle time a locked sandbox is stopped, and its disk is kept until it is unlocked; one
that was reaped for lack of sats is removed after the retention time; and the sandboxes of a delegated key end
with it.

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
from sandboxer.sandboxes.lifecycle import OVER, State
from sandboxer.sandboxes.records import Sandbox


class Lockable(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def locked_at(self) -> datetime | None: ...


def refuse_locked(thing: Lockable) -> None:
    """Raise Conflict for something locked. Call it in the transaction of the act, as a lock may be new."""
    if thing.locked_at is not None:
        raise Conflict(
            why=f"{thing.id} is locked",
            reason="locked",
            hint="Repeat the request, and answer the challenge that it is given.",
        )


def is_guarded(sandbox: Sandbox) -> bool:
    """Return whether it is locked and something is left of it."""
    return sandbox.locked_at is not None and sandbox.state not in OVER


def refuse_guarded(sandbox: Sandbox) -> None:
    if is_guarded(sandbox):
        refuse_locked(sandbox)


async def lock(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Sandbox:
    """Lock a sandbox; locked already is success."""
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
    """Unlock a sandbox after the edge has asked for a second proof. Unlocked already is success."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    if sandbox.locked_at is None:
        return sandbox
    now = dependencies.clock.now()

    def unlocked(current: Sandbox) -> Mapping[str, object]:
        changes: dict[str, object] = {"locked_at": None}
        if current.state is State.STOPPED and not current.terms.keeps_free:
            # Its retention starts now; otherwise unlocking could remove it at once.
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
    if sandbox.state in OVER:
        raise IllegalTransition(signal="lock", state=sandbox.state.value)
    return {"locked_at": sandbox.locked_at or now}
