"""All acts of this package for a caller, in one class: edges and upper packages hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from sandboxer.backends.contract import Capacity, Fingerprint, Usage
from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import Profile
from sandboxer.sandboxes.quarantine import Held
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import (
    access,
    boost,
    create,
    destroy,
    disks,
    inspection,
    lifetime,
    locks,
    pause,
)
from sandboxer.sandboxes.use_cases.disks import Kept
from sandboxer.sandboxes.use_cases.inspection import Reachability
from sandboxer.sandboxes.use_cases.lifetime import Before, Expiry
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page


@dataclass(frozen=True, slots=True)
class SandboxUseCases:
    dependencies: SandboxDependencies

    async def create(
        self,
        request: CreateRequest,
        caller: Caller,
        *,
        wait: bool = True,
        also: Also | None = None,
        is_funded: bool = False,
    ) -> Sandbox:
        """Create a sandbox. With `wait=False` it returns while it is provisioning, which goes on by itself.

        `also` is written in the transaction of its record; with `is_funded` it brings the credit for it.
        """
        return await create.create(
            self.dependencies, request, caller, wait=wait, also=also, is_funded=is_funded
        )

    async def check_create(self, request: CreateRequest, caller: Caller) -> None:
        await create.check(self.dependencies, request, caller)

    async def recall(self, sandbox_id: str, caller: Caller, *, wait: bool = True) -> Sandbox | None:
        """Return the sandbox of a create whose answer was lost; None if it failed."""
        return await create.recall(self.dependencies, sandbox_id, caller, wait=wait)

    async def get(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await self.dependencies.visible(sandbox_id, caller)

    async def list(
        self,
        caller: Caller,
        *,
        labels: Mapping[str, str] | None = None,
        state: State | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Sandbox]:
        """List sandboxes, newest first.

        Without `state`, destroyed ones are left out. The owner sees everyone's.
        """
        return await inspection.list_sandboxes(
            self.dependencies, caller, labels=labels or {}, state=state, cursor=cursor, limit=limit
        )

    async def destroy(self, sandbox_id: str, caller: Caller, *, despite_lock: bool = False) -> Sandbox:
        """Destroy a sandbox. Destroyed already is success; one that is being made is undone."""
        return await destroy.destroy(self.dependencies, sandbox_id, caller, despite_lock=despite_lock)

    async def recreate(self, sandbox_id: str, caller: Caller, *, despite_lock: bool = False) -> Sandbox:
        return await disks.recreate(self.dependencies, sandbox_id, caller, despite_lock=despite_lock)

    async def keep_disk(self, sandbox_id: str, caller: Caller, disk_id: str) -> Kept:
        """See `disks.keep`."""
        return await disks.keep(self.dependencies, sandbox_id, caller, disk_id)

    async def restore_disk(
        self, sandbox_id: str, caller: Caller, disk_id: str, *, despite_lock: bool = False
    ) -> Sandbox:
        """See `disks.restore`."""
        return await disks.restore(self.dependencies, sandbox_id, caller, disk_id, despite_lock=despite_lock)

    async def lock(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await locks.lock(self.dependencies, sandbox_id, caller)

    async def unlock(self, sandbox_id: str, caller: Caller) -> Sandbox:
        """Ask for a second proof first, if it is locked."""
        return await locks.unlock(self.dependencies, sandbox_id, caller)

    async def stop(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await pause.stop(self.dependencies, sandbox_id, caller)

    async def resume(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await pause.resume(self.dependencies, sandbox_id, caller)

    async def freeze(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await pause.freeze(self.dependencies, sandbox_id, caller)

    async def thaw(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await pause.thaw(self.dependencies, sandbox_id, caller)

    async def boost(self, sandbox_id: str, vcpus: int, caller: Caller) -> Sandbox:
        """Give it more CPUs and memory at once, which are charged from now on."""
        return await boost.boost(self.dependencies, sandbox_id, vcpus, caller)

    async def unboost(self, sandbox_id: str, caller: Caller) -> Sandbox:
        return await boost.unboost(self.dependencies, sandbox_id, caller)

    async def check_ttl(
        self, sandbox_id: str, duration: str, caller: Caller, *, quote_id: str | None = None
    ) -> Sandbox:
        """See `lifetime.check_ttl`."""
        return await lifetime.check_ttl(self.dependencies, sandbox_id, duration, caller, quote_id=quote_id)

    async def change_ttl(
        self,
        sandbox_id: str,
        duration: str,
        caller: Caller,
        *,
        quote_id: str | None = None,
        also: Also | None = None,
    ) -> Sandbox:
        """Add `duration` to its TTL, within the profile's maximum.

        With a quote it goes on at the quote's rates from now. `also` is written in its transaction.
        """
        return await lifetime.change_ttl(
            self.dependencies, sandbox_id, duration, caller, quote_id=quote_id, also=also
        )

    async def usage(self, sandbox_id: str, caller: Caller) -> Usage:
        return await inspection.usage(self.dependencies, sandbox_id, caller)

    async def reachability(self, sandbox_id: str, caller: Caller) -> Reachability:
        return await inspection.reachability(self.dependencies, sandbox_id, caller)

    async def expire(self, caller: Caller, *, apply: bool = False, before: Before | None = None) -> Expiry:
        """Return the sandboxes past their time; with `apply`, end them now. Owner only. See `lifetime`."""
        return await lifetime.expire(self.dependencies, caller, apply=apply, before=before)

    async def stale(self, caller: Caller) -> Sequence[Held]:
        """Return what backends hold without a record. Owner only."""
        return await inspection.find(self.dependencies, caller)

    async def reap_stale(self, caller: Caller) -> Sequence[Held]:
        return await inspection.reap(self.dependencies, caller)

    async def counts(self, account: str | None = None) -> Mapping[str, int]:
        """Return how many sandboxes there are by state, zeros included, so that gauges are reset."""
        return {state.value: 0 for state in State} | await self.dependencies.repository.counts(account)

    async def fingerprints(self) -> Mapping[str, Fingerprint]:
        return await inspection.fingerprints(self.dependencies)

    async def capacities(self) -> Mapping[str, Capacity]:
        return await inspection.capacities(self.dependencies)

    def profiles(self) -> Sequence[Profile]:
        return self.dependencies.profiles.all()

    def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Return the environment of every command in it; a command's own variables override it."""
        return self.dependencies.environment(sandbox)

    def line(self, sandbox_id: str, caller: Caller, *, activity: str) -> AbstractAsyncContextManager[Guest]:
        """See `access.line`."""
        return access.line(self.dependencies, sandbox_id, caller, activity=activity)
