"""What a backend may say of money and of what it leaves: what making a sandbox costs the operator, and what
was removed with one. Both are optional; who asks is answered with nothing by a backend that cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol, runtime_checkable

from sandboxer.backends.contract import Backend, Handle, Order
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class


@value_class
class CostPart:
    # As a price list calls it: "creation", "vcpu", "gpu".
    what: str
    amount: Decimal


@value_class
class CostEstimate:
    """What a sandbox costs the operator, before taxes. Its amount is what its parts come to, exactly."""

    # A currency, in small letters: "usd".
    unit: str
    # Nothing: it costs nothing beyond this host.
    parts: tuple[CostPart, ...] = ()

    @property
    def amount(self) -> Decimal:
        return sum((part.amount for part in self.parts), Decimal(0))


@runtime_checkable
class EstimatesCost(Protocol):
    """A backend that knows what somebody else will charge for a sandbox, or that nobody will."""

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        """Estimates a sandbox that lives so long. Makes nothing; raises what `provision` would refuse."""


class CostsNothing:
    """A backend on this host: nobody charges for a sandbox, whatever the operator pays for the host."""

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        return CostEstimate(unit="usd")


@runtime_checkable
class TakesKeys(Protocol):
    """A backend at a provider who charges whoever's key it is given: an account may bring one of its own."""

    async def provision_with_key(self, order: Order, key: str) -> Handle:
        """Does as `Backend.provision`, at the expense of this key. The key is kept nowhere: what is needed to
        reach and remove the sandbox afterwards is the operator's, or belongs to this one sandbox alone.
        """


@value_class
class CleanupReport:
    """What became of a sandbox's belongings. Nothing of it is there any more but what is named in `left`."""

    removed: tuple[str, ...] = ()
    # What outlives it on purpose, such as volumes, or could not be reached.
    left: tuple[str, ...] = ()

    def as_json(self) -> Mapping[str, object]:
        return {"removed": list(self.removed), "left": list(self.left)}


@runtime_checkable
class ReportsCleanup(Protocol):
    """A backend that can say what it removed."""

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        """Does as `Backend.teardown`. Of what is gone already nothing is said."""


async def estimate_of(backend: Backend, order: Order, *, hours: Decimal) -> CostEstimate | None:
    """Returns what a sandbox would cost the operator; None if its backend cannot say."""
    if not hours.is_finite() or hours < 0:
        raise InvalidRequest(field="hours", why=f"{hours} is no length of time")
    return await backend.estimate_cost(order, hours=hours) if isinstance(backend, EstimatesCost) else None


async def torn_down(backend: Backend, sandbox_id: str) -> CleanupReport | None:
    """Removes a sandbox; returns what its backend says of that, None if it cannot say."""
    if isinstance(backend, ReportsCleanup):
        return await backend.teardown_with_report(sandbox_id)
    await backend.teardown(sandbox_id)
    return None
