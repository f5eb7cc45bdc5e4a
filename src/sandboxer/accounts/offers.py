"""Offers connect an answer that asks for money (402) with the ways to pay: payments adds what it takes.

A platform without a way to be paid uses `NO_OFFERS`; the payments package brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Payable:
    """Something that was asked for and costs money."""

    # The operation as the document names it (`createSandbox`), and its path.
    operation: str
    path: str
    # The account whose bucket would pay; None: the caller is unknown.
    account: str | None
    # What it costs in all, and the least with which it can begin; None where that is not known yet.
    sats: int | None
    least_sats: int | None
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is added to the 402: members of its problem document, and headers."""

    facts: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class PaymentOffers(Protocol):
    async def offer(self, wanted: Payable) -> Offer:
        """Return how this could be paid now. Quick, and never raises: a 402 shows prices in any case."""


class NoOffers:
    async def offer(self, wanted: Payable) -> Offer:
        return Offer()


NO_OFFERS = NoOffers()
