"""A purchase creates a sandbox and pays for it in one request.

The sandbox is made, then the payment is settled. If either fails, both are undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection

from sandboxer.accounts.authority import demand
from sandboxer.accounts.offers import Payable
from sandboxer.identity.genesis.gate import GenesisProof
from sandboxer.identity.keys import Caller
from sandboxer.money.amounts import sats_for
from sandboxer.money.pricing import Pricing, Quote, quote
from sandboxer.payments import records as payments
from sandboxer.payments.lifecycle import State as PaymentState
from sandboxer.payments.records import Payment
from sandboxer.payments.x402.checkout import Checkout, Taken, is_delivered, refusal_of
from sandboxer.sandboxes.charges.charging import size_of
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest, check_trust, plan
from sandboxer.sandboxes.use_cases.admission import Admission
from sandboxer.sandboxes.use_cases.destroy import remove
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.store.repository import Also
from sandboxer.wire.operations.declaration import Scope

_NOBODY = Caller(public_key="", account="")
_GONE = frozenset({State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    payable: Payable
    # What would be paid for what was asked, where that can be said.
    quote: Quote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchases:
    sandboxes: SandboxUseCases
    admission: Admission
    pricing: Pricing
    # The shortest time that is sold.
    least: timedelta

    def price(self, wanted: CreateRequest, account: str | None) -> Price:
        """Return the price of a create. Raises what refuses the request itself, as the create would."""
        dependencies = self.sandboxes.dependencies
        profile = dependencies.profiles.get(wanted.profile or dependencies.default_profile)
        now = dependencies.clock.now()
        record = plan(wanted, profile, _NOBODY, sandbox_id="", now=now)
        check_trust(record, dependencies.trust_max)
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
            made = await self._make(wanted, buyer, proof, funded, is_funded=True)
        except BaseException:
            await checkout.withdraw(payment.id, "nothing came of what it was to pay for")
            raise
        settled = await checkout.settle(payment)
        if not is_delivered(settled):
            await self.sandboxes.destroy(made.id, buyer, despite_lock=True)
            raise refusal_of(settled)
        return made, settled

    async def recall(self, sandbox_id: str, account: str | None) -> Sandbox | None:
        """Return what a purchase made whose answer was lost, if it still exists.

        `account` None: anybody's.
        """
        made = await self.sandboxes.dependencies.repository.find(sandbox_id)
        if made is None or made.state in _GONE or (account is not None and made.account != account):
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
        sandbox_id = payment.details.get("sandbox_id")
        if sandbox_id is not None:
            return await self.sandboxes.get(str(sandbox_id), buyer)
        return await self._make(wanted, buyer, proof, also, is_funded=False)

    async def _make(
        self,
        wanted: CreateRequest,
        buyer: Caller,
        proof: GenesisProof | None,
        also: Also | None,
        *,
        is_funded: bool,
    ) -> Sandbox:
        authority = await self.admission.authorities.of(buyer)
        if authority.is_delegated:
            # A wallet may be linked to a delegated key: paying gives it no scope that the key has not.
            demand(authority, Scope.SANDBOXES_CREATE, now=self.sandboxes.dependencies.clock.now())
        async with self.admission.of(wanted, buyer, proof) as admitted:
            return await self.sandboxes.create(admitted, buyer, also=also, is_funded=is_funded)

    def _funding(self, checkout: Checkout, payment: Payment) -> Also:
        now = self.sandboxes.dependencies.clock.now()
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
        sandbox = await dependencies.repository.find(sandbox_id)
        if sandbox is not None:
            await remove(dependencies, sandbox, actor="system:unpaid", reason="not_paid")
