"""The seam between asking for money and the ways to pay it: a 402 is made by an edge, and whoever can take
payments adds what it takes.

A platform without a way to be paid uses `NO_OFFERS`; the payments package brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Payable:
    """What was asked for and cannot be had without money."""

    # The operation as the document names it (`createSandbox`), and its path.
    operation: str
    path: str
    # Whose bucket it would come from; None: someone who has not said who it is.
    account: str | None
    # What all that was asked for costs, and the least that lets it begin; None where nobody can tell yet.
    sats: int | None
    least_sats: int | None
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What goes into the answer beside the prices: members of the problem, and headers."""

    facts: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class PaymentOffers(Protocol):
    async def offer(self, wanted: Payable) -> Offer:
        """How this could be paid now. Quick, and never raises: a 402 tells prices in any case."""


class NoOffers:
    async def offer(self, wanted: Payable) -> Offer:
        return Offer()


NO_OFFERS = NoOffers()
