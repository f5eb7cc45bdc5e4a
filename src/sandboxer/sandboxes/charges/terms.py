"""The terms of a sandbox: its rates, fixed when it is created, and what suspends them for now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandboxer.money.pricing import FREE, RateCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    card: RateCard = FREE
    # It is in a slot of its account's tier and runs at rate zero while it occupies that slot.
    is_entitled: bool = False
    # Its disk is kept at rate zero: any rate would pass a spending cap, or a budget that is used up.
    keeps_free: bool = False
    # The quote that promised the card; named before the card is known, while it is being created.
    quote_id: str | None = None
    # Its egress has a price, even if its time has none.
    pays_egress: bool = False

    @property
    def is_free(self) -> bool:
        return self.card == FREE and not self.pays_egress


PAYS_NOTHING = Terms()


def to_json(terms: Terms) -> dict[str, object] | None:
    """Convert the terms for the database; None for a sandbox that pays nothing."""
    if terms == PAYS_NOTHING:
        return None
    card = terms.card
    return {
        "running": card.running,
        "frozen": card.frozen,
        "stored": card.stored,
        "entitled": terms.is_entitled,
        "keeps_free": terms.keeps_free,
        "quote": terms.quote_id,
        "pays_egress": terms.pays_egress,
    }


def from_json(stored: Mapping[str, Any] | None) -> Terms:
    if stored is None:
        return PAYS_NOTHING
    card = RateCard(running=stored["running"], frozen=stored["frozen"], stored=stored["stored"])
    return Terms(
        card=card,
        is_entitled=bool(stored["entitled"]),
        keeps_free=bool(stored.get("keeps_free", False)),
        quote_id=stored.get("quote"),
        pays_egress=bool(stored.get("pays_egress", False)),
    )
