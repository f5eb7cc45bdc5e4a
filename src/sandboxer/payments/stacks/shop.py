"""`exact` on Stacks: where an operator is paid and in what, and the scheme for both sides of the x402
package.

The settings are checked once, at start. The paying side signs a transfer that a relay will sponsor; the
selling side makes requirements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from x402.interfaces import PaymentFlowConfig
from x402.schemas import AssetAmount, Network, PaymentRequirements, Price, SupportedKind

from sandboxer.identity.signatures.stacks import ContractPrincipal
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import ASSETS, Asset
from sandboxer.payments.stacks.clarity import AssetName
from sandboxer.payments.stacks.transactions import MEMO_BYTES, StacksKey, write_transaction
from sandboxer.payments.stacks.transfers import (
    NETWORKS,
    PUBLISHED,
    SCHEME,
    STX,
    Order,
    StacksNetwork,
    asset_name,
    principal,
    sponsored_transfer,
)
from sandboxer.payments.x402.config import IN_PROCESS, AssetSettings, NetworkSettings

# How long a signed payment may take to reach us, as the published middleware has it.
TIMEOUT_S = 300
# As the published clients call them.
_TOKEN_TYPES = {"SBTC": "sBTC", "USDCX": "USDCx", "STX": "STX"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token to pay with; `name` None is native STX."""

    asset: Asset
    name: AssetName | None

    @property
    def wire(self) -> str:
        """The `asset` of x402's requirements."""
        return STX if self.name is None else self.name.contract.text

    def extra(self) -> dict[str, str | int]:
        """What a paying client needs besides: above all the token's own name, for its post-condition."""
        facts: dict[str, str | int] = {
            "tokenType": _TOKEN_TYPES.get(self.asset.code, self.asset.code),
            "decimals": self.asset.decimals,
        }
        return facts if self.name is None else {**facts, "assetName": self.name.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksShop:
    network: StacksNetwork
    pay_to: str
    relay: str
    tokens: tuple[Token, ...]
    # A node's or explorer's API, to see for ourselves what is on chain; without one, the relay is believed.
    node: str | None = None
    # Another one: nothing is taken back unless both say so.
    second_node: str | None = None
    timeout_s: int = TIMEOUT_S
    # Demanded in every transfer: tells apart installations that are paid at one address.
    memo: str | None = None

    def token(self, wire: str) -> Token | None:
        return next((token for token in self.tokens if token.wire == wire), None)


def stacks_shop(settings: NetworkSettings) -> StacksShop:
    """Raises InvalidRequest naming what cannot be."""
    chain = NETWORKS.get(settings.network)
    if chain is None:
        raise _bad(settings.network, f"is none of {', '.join(NETWORKS)}")
    if settings.facilitator == IN_PROCESS:
        raise _bad(chain.caip2, "needs the address of a sponsor relay as its facilitator")
    _same_network(chain, settings.pay_to, "pay_to")
    return StacksShop(
        network=chain,
        pay_to=settings.pay_to,
        relay=_url(chain, settings.facilitator),
        node=None if settings.rpc_url is None else _url(chain, settings.rpc_url),
        second_node=None if settings.second_rpc_url is None else _url(chain, settings.second_rpc_url),
        tokens=tuple(_token(chain, asset) for asset in settings.assets),
        memo=_memo(chain, settings.options.get("memo")),
    )


def _memo(chain: StacksNetwork, given: object) -> str | None:
    if given is not None and not (isinstance(given, str) and 0 < len(given.encode()) <= MEMO_BYTES):
        raise _bad(chain.caip2, f"options.memo is a text of 1 to {MEMO_BYTES} bytes")
    return given


def _token(chain: StacksNetwork, asset: AssetSettings) -> Token:
    """Its id is `STX`, `address.contract::token`, or `address.contract` where the token's name is known."""
    if (asset.id == STX) != (asset.code == STX):
        raise _bad(chain.caip2, f"{asset.code} cannot be {asset.id}")
    if asset.id == STX:
        return Token(ASSETS[STX], None)
    known = {where.partition("::")[0]: where for where in PUBLISHED[chain.caip2].values()}
    name = asset_name(str(asset.extra.get("assetName", known.get(asset.id, asset.id))))
    _same_network(chain, name.contract.text, asset.code)
    return Token(ASSETS[asset.code], name)


def _same_network(chain: StacksNetwork, text: str, what: str) -> None:
    found = principal(text)
    address = found.address if isinstance(found, ContractPrincipal) else found
    if (address.network == "mainnet") != chain.mainnet:
        raise _bad(chain.caip2, f"{what} is an address of the other network")


def _url(chain: StacksNetwork, text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise _bad(chain.caip2, "facilitator and rpc_url are http(s) addresses")
    return text.rstrip("/")


def _bad(network: str, why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"{network} {why}")


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
            token=_token_asked(requirements),
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


def _token_asked(requirements: PaymentRequirements) -> AssetName | None:
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
