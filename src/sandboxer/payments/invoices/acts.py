"""What may have to be done about an invoice, as values. Output and round together name its ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand over what was bought: a key, a tier, sats."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take back what was handed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """An output became money: so many sats for what was bought, so many into the bucket."""

    output: str
    round: int
    sale: int
    bucket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverse:
    """The chain took it back: the same sums the other way; what was spent meanwhile is a debt."""

    output: str
    round: int
    sale: int
    bucket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRefund:
    output: str
    round: int
    amount: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRefund:
    output: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Too little to give back to somebody without an account."""

    output: str
    round: int


Act: TypeAlias = Deliver | Withdraw | Credit | Reverse | QueueRefund | CancelRefund | Keep
