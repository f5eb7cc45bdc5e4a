"""Where an operator is paid on Stacks and in what, read from the settings: checked once, at start."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxer.identity.signatures.stacks import ContractPrincipal
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import ASSETS, Asset
from sandboxer.payments.stacks.codec.post_conditions import AssetName
from sandboxer.payments.stacks.codec.transactions import MEMO_BYTES
from sandboxer.payments.stacks.transfers import NETWORKS, PUBLISHED, STX, StacksNetwork, asset_name, principal
from sandboxer.payments.x402.config import IN_PROCESS, AssetSettings, NetworkSettings

# How long a signed payment may take to reach us, as the published middleware has it.
TIMEOUT_S = 300
# As the published clients call them.
_TOKEN_TYPES = {"SBTC": "sBTC", "USDCX": "USDCx", "STX": "STX"}


@dataclass(frozen=True, slots=True)
class Token:
    """Something to pay with; `name` None is native STX."""

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
