"""The selling side: `exact` on Stacks for `x402ResourceServer`, and a requirement without that machinery."""

from __future__ import annotations

from collections.abc import Mapping

from x402.interfaces import PaymentFlowConfig
from x402.schemas import AssetAmount, Network, PaymentRequirements, Price, SupportedKind

from sandboxer.kernel.errors import InvalidRequest
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
