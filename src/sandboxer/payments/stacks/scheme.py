"""`exact` on Stacks for the x402 package: the side that pays and the side that sells.

The paying side: `exact` on Stacks for `x402Client`. Signs a transfer that a relay will sponsor.

The selling side: `exact` on Stacks for `x402ResourceServer`, and a requirement without that machinery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from x402.interfaces import PaymentFlowConfig
from x402.schemas import AssetAmount, Network, PaymentRequirements, Price, SupportedKind

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.codec.post_conditions import AssetName
from sandboxer.payments.stacks.codec.transactions import StacksKey, write_transaction
from sandboxer.payments.stacks.shop import StacksShop, Token
from sandboxer.payments.stacks.transfers import (
    NETWORKS,
    PUBLISHED,
    SCHEME,
    STX,
    Order,
    asset_name,
    sponsored_transfer,
)

# The next nonce of an address: from a node, plus what was signed and is not there yet.
Nonces = Callable[[str], int]


class ExactStacksClient:
    """Implements x402's SchemeNetworkClient; registered for `stacks:1` or `stacks:2147483648`."""

    scheme = SCHEME

    def __init__(self, key: StacksKey, nonces: Nonces) -> None:
        self._key = key
        self._nonces = nonces

    def create_payment_payload(self, requirements: PaymentRequirements) -> dict[str, Any]:
        network = NETWORKS.get(str(requirements.network))
        if network is None:
            raise InvalidRequest(field="network", why=f"{requirements.network} is no Stacks network")
        memo = requirements.extra.get("memo", "")
        order = Order(
            network=network,
            recipient=requirements.pay_to,
            amount=int(requirements.amount),
            nonce=self._nonces(self._key.address(mainnet=network.mainnet)),
            token=_token(requirements),
            memo=memo.encode() if isinstance(memo, str) else b"",
        )
        signed = sponsored_transfer(order, self._key)
        return {"transaction": write_transaction(signed).hex()}

    def get_asset_decimals(self, asset: str, network: str) -> int | None:
        """x402's spend controls ask; only the published tokens are known."""
        decimals = {"SBTC": 8, "STX": 6, "USDCX": 6}
        for code, where in PUBLISHED.get(network, {}).items():
            if asset == where.partition("::")[0]:
                return decimals[code]
        return None


def _token(requirements: PaymentRequirements) -> AssetName | None:
    """The seller names the token; a name of another contract than the one to be paid is not signed."""
    if requirements.asset == STX:
        return None
    named = requirements.extra.get("assetName")
    published = PUBLISHED[str(requirements.network)].values()
    known = next((where for where in published if where.startswith(requirements.asset + "::")), None)
    if not isinstance(named, str) and known is None:
        raise InvalidRequest(field="extra.assetName", why=f"what is the token of {requirements.asset[:90]}?")
    token = asset_name(named if isinstance(named, str) else str(known))
    if token.contract.text != requirements.asset:
        raise InvalidRequest(field="extra.assetName", why="it is not a token of the asset's contract")
    return token


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
