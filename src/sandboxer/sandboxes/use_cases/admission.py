"""Admission prepares a create: it looks up what the request names, checks the gate and keeps a slot for it.

Everything that makes sandboxes for a caller (a create, a purchase, a session, a service, a run of code)
passes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from sandboxer.accounts.authority import Authority, AuthorityRepository
from sandboxer.accounts.delegation import slots_left
from sandboxer.identity.genesis.gate import GenesisGate, GenesisProof
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden, NotAvailable
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import Genesis
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.store.engine import Store

_OVER = frozenset({State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED})


class Slots:
    def __init__(self, dependencies: SandboxDependencies, store: Store) -> None:
        self._dependencies = dependencies
        self._store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def in_use(self, account: str) -> int:
        """Return how many sandboxes the account itself has."""
        kept = self._dependencies.repository.living()
        return sum(1 for sandbox in kept if sandbox.account == account and sandbox.state not in _OVER)

    @asynccontextmanager
    async def alone(self, account: str) -> AsyncIterator[None]:
        """Keep everybody else from using or giving away slots of this account meanwhile."""
        lock = self._locks.setdefault(account, asyncio.Lock())
        async with lock:
            yield

    @asynccontextmanager
    async def taken(self, authority: Authority) -> AsyncIterator[None]:
        """Room for one more, until it is created. Raises Forbidden if there is none."""
        if authority.slots is None:
            yield
            return
        account = authority.account.id
        async with self.alone(account):
            used = self.in_use(account)
            left = await self._store.read(lambda conn: slots_left(conn, authority, used))
            if left is not None and left < 1:
                raise Forbidden(
                    why=f"this key may have {authority.slots} sandboxes at once, its children's included",
                    reason="no_slots",
                    slots=authority.slots,
                    hint="Destroy a sandbox, or end a child key, and try again.",
                )
            yield


class Source(Protocol):
    """Completes a request that names a snapshot, a published image or volumes.

    The packages that keep such things implement it; this package knows none of them.
    """

    async def complete(self, request: CreateRequest, caller: Caller) -> CreateRequest:
        """Return the request with what it names of this kind filled in, or unchanged if it names nothing.

        Raises NotFound for what is not the caller's, and other refusals. A request that was completed before
        is returned unchanged.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    dependencies: SandboxDependencies
    slots: Slots
    authorities: AuthorityRepository
    # None: the operator configured no registry.
    gate: GenesisGate | None
    # True: every profile demands the gate, whatever it says itself.
    is_gate_demanded: bool
    # In the order in which they are asked.
    sources: Sequence[Source] = ()

    async def complete(self, request: CreateRequest, caller: Caller) -> CreateRequest:
        for source in self.sources:
            request = await source.complete(request, caller)
        return request

    @asynccontextmanager
    async def of(
        self, request: CreateRequest, caller: Caller, proof: GenesisProof | None
    ) -> AsyncIterator[CreateRequest]:
        """Yield the completed request of a caller who may make it; a slot is kept until the block ends.

        Raises Forbidden (the gate, no slot), NotFound, and what else a source refuses.
        """
        completed = await self.complete(request, caller)
        await self.pass_gate(completed.profile, caller, proof)
        async with self.slots.taken(await self.authorities.of(caller)):
            yield completed

    async def pass_gate(self, profile_id: str | None, caller: Caller, proof: GenesisProof | None) -> None:
        """Check the caller's genesis proof if the operator or the profile demands one.

        A proof admits once.
        """
        profile = self.dependencies.profiles.find(profile_id or self.dependencies.default_profile)
        is_profiles = profile is not None and profile.genesis is Genesis.REQUIRED
        if caller.is_owner or not (self.is_gate_demanded or is_profiles):
            return
        if self.gate is None:
            # Refused and not admitted: the author of the profile wanted to know whom it serves.
            raise NotAvailable(
                what=f"profile {profile_id}",
                why="it asks for a genesis proof, and the operator named no registry",
            )
        await self.gate.admit(caller.account, proof)
