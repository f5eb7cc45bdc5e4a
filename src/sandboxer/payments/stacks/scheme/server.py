"""The selling side: what a price in sats is in each Stacks asset, as x402 requirements."""

from __future__ import annotations

from collections.abc import Mapping

from x402.interfaces import PaymentFlowConfig
from x402.schemas import AssetAmount, Network, PaymentRequirements, Price, SupportedKind

from sandboxer.kernel.errors import InvalidRequest, NoRate
from sandboxer.payments.oracle.conversion import atomic_for_sats, needs_rate
from sandboxer.payments.oracle.rates import Rates
from sandboxer.payments.stacks.networks import SCHEME
from sandboxer.payments.stacks.shop import StacksShop, Token


class ExactStacksServer:
    """x402's SchemeNetworkServer. Prices come as amounts of an asset: rates are asked elsewhere."""

    scheme = SCHEME
    default_asset_transfer_method = "sponsored"
    payment_flows: Mapping[str, PaymentFlowConfig] = {
        "sponsored": {"supported": ("authorization", "upfront"), "default": "upfront"}
    }

    def __init__(self, shop: StacksShop) -> None:
        self._shop = shop

    def parse_price(self, price: Price, network: Network) -> AssetAmount:
        amount = AssetAmount(**price) if isinstance(price, dict) else price
        if not isinstance(amount, AssetAmount):
            raise InvalidRequest(field="price", why="on Stacks a price names its asset; dollars need a rate")
        token = self._shop.token(amount.asset)
        if token is None:
            raise InvalidRequest(field="price", why=f"{amount.asset} is not taken on {network}")
        return AssetAmount(
            amount=amount.amount, asset=amount.asset, extra={**token.extra(), **(amount.extra or {})}
        )

    def enhance_payment_requirements(
        self, requirements: PaymentRequirements, supported_kind: SupportedKind, extensions: list[str]
    ) -> PaymentRequirements:
        token = self._shop.token(requirements.asset)
        if token is not None:
            requirements.extra = {**token.extra(), **requirements.extra}
        return requirements


def requirement(shop: StacksShop, token: Token, amount: int) -> PaymentRequirements:
    return PaymentRequirements(
        scheme=SCHEME,
        network=shop.network.caip2,
        asset=token.wire,
        amount=str(amount),
        pay_to=shop.pay_to,
        max_timeout_seconds=shop.timeout_s,
        extra=token.extra(),
    )


async def offers(shop: StacksShop, sats: int, rates: Rates | None) -> list[PaymentRequirements]:
    """Every way to pay `sats`; an asset without a rate right now is left out, sBTC never is."""
    found = []
    for token in shop.tokens:
        try:
            found.append(requirement(shop, token, await _atomic(token, sats, rates)))
        except NoRate:
            continue
    return found


async def _atomic(token: Token, sats: int, rates: Rates | None) -> int:
    asset = token.asset
    if not needs_rate(asset.code):
        return atomic_for_sats(sats, asset, None, None)
    if rates is None:
        raise NoRate(asset=asset.code, why="no oracle is set up")
    return atomic_for_sats(sats, asset, await rates.usd(asset.code), await rates.usd("BTC"))
