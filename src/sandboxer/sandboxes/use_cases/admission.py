"""Admission prepares a create: it looks up what the request names, checks the gate and keeps a slot for it.

Everything that makes sandboxes for a caller (a create, a purchase, a session, a service, a run of code)
passes it.

A purchase creates a sandbox and pays for it in one request. The sandbox is made, then the payment is settled.
If either fails, both are undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Protocol
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority, AuthorityRepository, demand
from sandboxer.accounts.delegation import slots_left
from sandboxer.accounts.records import Payable
from sandboxer.identity.genesis.gate import GenesisGate, GenesisProof
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden, NotAvailable
from sandboxer.kernel.values import counted, value_class
from sandboxer.money.amounts import sats_for
from sandboxer.money.pricing import Pricing, Quote, quote
from sandboxer.payments import records as payments
from sandboxer.payments.lifecycle import State as PaymentState
from sandboxer.payments.records import Payment
from sandboxer.payments.x402.checkout import Checkout, Taken, is_delivered, refusal_of
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import OVER
from sandboxer.sandboxes.profiles import Genesis
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest, check_trust, plan
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.sandboxes.use_cases.lifetime import remove
from sandboxer.store.engine import Store
from sandboxer.store.repository import Also
from sandboxer.wire.operations.declaration import Scope


class Slots:
    def __init__(self, dependencies: SandboxDependencies, store: Store) -> None:
        self._dependencies = dependencies
        self._store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def in_use(self, account: str) -> int:
        """Return how many sandboxes the account itself has."""
        kept = self._dependencies.repository.living(account)
        return sum(1 for sandbox in kept if sandbox.state not in OVER)

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
                many = counted(authority.slots, "sandbox")
                raise Forbidden(
                    why=f"this key may have {many} at once, its children's included",
                    reason="no_slots",
                    slots=authority.slots,
                    hint="Delete one first (GET /v1/sandboxes), or end a child key (GET /v1/keys/tree).",
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


@value_class
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
    async def shared(
        self, request: CreateRequest, caller: Caller, *, wait: bool = True
    ) -> AsyncIterator[Sandbox | None]:
        """Yield the sandbox that those whom the request names share already, or None: until the block ends
        nobody else makes one for them. It takes no slot.
        """
        completed = await self.complete(request, caller)
        if (key := creation.sharing_of(self.dependencies, completed, caller)) is None:
            yield None
            return
        async with self.slots.alone(f"{caller.account} {key}"):
            yield await creation.find_shared(self.dependencies, key, caller, wait=wait)

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


_NOBODY = Caller(public_key="", account="")


@value_class
class Price:
    payable: Payable
    # What would be paid for what was asked, where that can be said.
    quote: Quote | None = None


@value_class
class Purchases:
    sandboxes: SandboxDependencies
    admission: Admission
    pricing: Pricing
    # The shortest time that is sold.
    least: timedelta

    def price(self, wanted: CreateRequest, account: str | None) -> Price:
        """Return the price of a create. Raises what refuses the request itself, as the create would."""
        dependencies = self.sandboxes
        profile = dependencies.profiles.get(wanted.profile or dependencies.default_profile)
        now = dependencies.clock.now()
        record = plan(wanted, profile, _NOBODY, sandbox_id="", now=now)
        check_trust(record, profile, dependencies.trust_max)
        cost = quote(profile.id, size_of(record.resources), record.ttl, self.pricing, now=now)
        payable = Payable(
            operation="createSandbox",
            path="/v1/sandboxes",
            account=account,
            sats=cost.sats,
            least_sats=sats_for(cost.card.running, min(record.ttl, self.least)),
            description=f"A sandbox of {profile.id}",
        )
        return Price(payable=payable, quote=cost)

    async def buy(
        self,
        wanted: CreateRequest,
        buyer: Caller,
        taken: Taken,
        checkout: Checkout,
        *,
        proof: GenesisProof | None,
        also: Also | None,
    ) -> tuple[Sandbox, Payment]:
        """Make the sandbox that this payment buys; return it and the payment as known then.

        A payment that was presented before returns what it bought, or else buys with its credit. Raises what
        refuses the create or the payment; then nothing is made and no money is taken.
        """
        if not taken.is_new:
            return await self._bought(wanted, buyer, taken.payment, proof, also), taken.payment
        payment = taken.payment
        try:
            funded = _both(also, self._funding(checkout, payment))
            made = await self._make(wanted, buyer, proof, funded)
        except BaseException:
            await checkout.withdraw(payment.id, "nothing came of what it was to pay for")
            raise
        settled = await checkout.settle(payment)
        if not is_delivered(settled):
            await lifetime.destroy(self.sandboxes, made.id, buyer, despite_lock=True)
            raise refusal_of(settled)
        return made, settled

    async def recall(self, sandbox_id: str, account: str | None) -> Sandbox | None:
        """Return what a purchase made whose answer was lost, if it still exists.

        `account` None: anybody's.
        """
        made = await self.sandboxes.repository.find(sandbox_id)
        if made is None or made.state in OVER or (account is not None and made.account != account):
            return None
        return made

    async def _bought(
        self,
        wanted: CreateRequest,
        buyer: Caller,
        payment: Payment,
        proof: GenesisProof | None,
        also: Also | None,
    ) -> Sandbox:
        if not is_delivered(payment):
            raise refusal_of(payment)
        if (sandbox_id := payment.details.get("sandbox_id")) is not None:
            return await self.sandboxes.visible(str(sandbox_id), buyer)
        return await self._make(wanted, buyer, proof, also)

    async def _make(
        self,
        wanted: CreateRequest,
        buyer: Caller,
        proof: GenesisProof | None,
        also: Also | None,
    ) -> Sandbox:
        authority = await self.admission.authorities.of(buyer)
        if authority.is_delegated:
            # A wallet may be linked to a delegated key: paying gives it no scope that the key has not.
            demand(authority, Scope.SANDBOXES_CREATE, now=self.sandboxes.clock.now())
        async with self.admission.of(wanted, buyer, proof) as admitted:
            return await creation.create(self.sandboxes, admitted, buyer, also=also)

    def _funding(self, checkout: Checkout, payment: Payment) -> Also:
        now = self.sandboxes.clock.now()
        return lambda conn, sandbox_id: checkout.fund(conn, payment, sandbox_id, now)


def price_of_extend(sandbox_id: str, account: str | None) -> Price:
    """Return the price of an extension without amounts: a caller who may not see a sandbox learns no cost."""
    payable = Payable(
        operation="extendTtl",
        path=f"/v1/sandboxes/{sandbox_id}/ttl",
        account=account,
        sats=None,
        least_sats=None,
        description="More time for a sandbox",
    )
    return Price(payable=payable)


def _both(first: Also | None, second: Also) -> Also:
    def both(conn: Connection, sandbox_id: str) -> None:
        if first is not None:
            first(conn, sandbox_id)
        second(conn, sandbox_id)

    return both


async def undo_unpaid(dependencies: SandboxDependencies, store: Store) -> None:
    """Remove sandboxes that were made against a payment which nobody had settled when the process ended.

    Their payer has no answer and has paid nothing: they go, before their payments are given back. At start
    only. Repeating it is harmless; a crash half-way is finished at the next start.
    """
    for payment in await store.read(payments.interrupted):
        sandbox_id = payment.details.get("sandbox_id")
        if payment.state is not PaymentState.QUEUED or not isinstance(sandbox_id, str):
            continue
        if (sandbox := await dependencies.repository.find(sandbox_id)) is not None:
            await remove(dependencies, sandbox, actor="system:unpaid", reason="not_paid")
