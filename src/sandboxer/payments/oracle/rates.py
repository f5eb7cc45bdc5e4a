"""A rate as a value, and the one question the other rooms may ask. No network here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

# Where an asset is worth what another is, the other's rate is asked for.
SAME_AS = {"SBTC": "BTC", "USDCX": "USDC"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """US dollars for one whole unit of the asset."""

    asset: str
    usd: Decimal
    at: datetime
    # Who said so, sorted.
    sources: tuple[str, ...]


class Rates(Protocol):
    async def usd(self, asset: str) -> Rate:
        """The rate now. Raises NoRate: nothing new may be priced, what is under way waits."""

    async def warm(self, assets: Iterable[str]) -> None:
        """Have these at hand: asks for all of them at once. What fails is told by `usd`."""

    @property
    def assets(self) -> tuple[str, ...]:
        """What a rate can be asked for, sorted."""
