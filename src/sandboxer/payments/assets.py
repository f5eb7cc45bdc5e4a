"""The units outside money is counted in. Inside this package an amount is always an integer of the smallest
unit (satoshi, litoshi, koinu, piconero, micro-dollar); decimals exist only where people read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation, localcontext
from types import MappingProxyType

from sandboxer.kernel.errors import InvalidRequest

# Wide enough for any amount of any chain; an operation that would round must raise instead.
_EXACT = Context(prec=60)


@dataclass(frozen=True)
class Asset:
    """`confirmations`: how deep a deposit must lie by default; None where another rule decides finality."""

    code: str
    decimals: int
    confirmations: int | None = None

    @property
    def unit(self) -> int:
        """Smallest units in a whole one."""
        return int(10**self.decimals)


ASSETS: Mapping[str, Asset] = MappingProxyType(
    {
        asset.code: asset
        for asset in (
            Asset("BTC", 8, 3),
            Asset("LTC", 8, 6),
            Asset("DOGE", 8, 6),
            Asset("XMR", 12, 10),
            Asset("STX", 6),
            Asset("SBTC", 8),
            Asset("USDCX", 6),
            Asset("USDC", 6),
        )
    }
)


def asset_named(code: str) -> Asset:
    try:
        return ASSETS[code.upper()]
    except KeyError:
        raise InvalidRequest(field="asset", why=f"{code!r} is not one of {', '.join(ASSETS)}") from None


def to_atomic(amount: str | Decimal, asset: Asset) -> int:
    """`"4.52"` XMR is 4520000000000. Exact: an amount with more digits than the asset has is refused."""
    with localcontext(_EXACT):
        try:
            number = Decimal(amount)
        except InvalidOperation:
            raise InvalidRequest(field="amount", why=f"{amount!r} is not a number") from None
        if not number.is_finite() or number < 0 or number.adjusted() > 30:
            raise InvalidRequest(field="amount", why=f"{amount!r} is not an amount of money")
        scaled = number.scaleb(asset.decimals)
        if scaled != int(scaled):
            raise InvalidRequest(
                field="amount", why=f"{asset.code} has {asset.decimals} decimal digits, {amount!r} has more"
            )
        return int(scaled)


def from_atomic(amount: int, asset: Asset) -> Decimal:
    return Decimal(amount).scaleb(-asset.decimals, context=_EXACT)


def as_text(amount: int, asset: Asset) -> str:
    """Plain digits without an exponent and without zeros at the end: `"0.5"`, `"4.52"`, `"3"`."""
    text = f"{from_atomic(amount, asset):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
