"""Where an operator is paid on Stacks and in what, read from the settings: checked once, at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandboxer.identity.signatures.clarity import ContractPrincipal
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import ASSETS, Asset
from sandboxer.payments.stacks.codec.post_conditions import AssetName
from sandboxer.payments.stacks.networks import NETWORKS, PUBLISHED, STX, StacksNetwork
from sandboxer.payments.stacks.transfers import asset_name, principal

# How long a signed payment may take to reach us, as the published middleware has it.
DEFAULT_TIMEOUT_S = 300
_KNOWN = frozenset({"pay_to", "relay", "node", "assets", "timeout_seconds"})
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
        told: dict[str, str | int] = {
            "tokenType": _TOKEN_TYPES.get(self.asset.code, self.asset.code),
            "decimals": self.asset.decimals,
        }
        return told if self.name is None else {**told, "assetName": self.name.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksShop:
    network: StacksNetwork
    pay_to: str
    relay: str
    tokens: tuple[Token, ...]
    # A node's or explorer's API, to see for ourselves what is on chain; without one, the relay is believed.
    node: str | None = None
    timeout_s: int = DEFAULT_TIMEOUT_S

    def token(self, wire: str) -> Token | None:
        return next((token for token in self.tokens if token.wire == wire), None)

    def token_named(self, code: str) -> Token:
        for token in self.tokens:
            if token.asset.code == code.upper():
                return token
        raise InvalidRequest(field="asset", why=f"{code} is not taken on {self.network.caip2}")


def stacks_shop(network: str, settings: Mapping[str, object]) -> StacksShop:
    """`{"pay_to": "SP…", "relay": "https://…", "node": "https://…", "assets": {"SBTC": "…::…"}}`."""
    if network not in NETWORKS:
        raise _bad(network, f"is none of {', '.join(NETWORKS)}")
    if unknown := set(settings) - _KNOWN:
        raise _bad(network, f"knows no {', '.join(sorted(unknown))}")
    chain = NETWORKS[network]
    pay_to, relay, node = (settings.get(name) for name in ("pay_to", "relay", "node"))
    if not isinstance(pay_to, str) or not isinstance(relay, str):
        raise _bad(network, "needs pay_to (an address) and relay (a URL)")
    _same_network(chain, pay_to, "pay_to")
    timeout = settings.get("timeout_seconds", DEFAULT_TIMEOUT_S)
    if not isinstance(timeout, int) or not 10 <= timeout <= 3600:
        raise _bad(network, "has timeout_seconds from 10 to 3600")
    return StacksShop(
        network=chain,
        pay_to=pay_to,
        relay=_url(network, relay),
        node=_url(network, node) if isinstance(node, str) else None,
        tokens=_tokens(chain, settings.get("assets")),
        timeout_s=timeout,
    )


def _tokens(chain: StacksNetwork, wanted: object) -> tuple[Token, ...]:
    """`{"SBTC": "", …}` takes the published contract; none named: all published ones."""
    published = PUBLISHED[chain.caip2]
    if wanted is None:
        wanted = dict(published)
    if not isinstance(wanted, Mapping) or not wanted:
        raise _bad(chain.caip2, 'has assets like {"SBTC": "address.contract::token"}')
    tokens = []
    for code, where in wanted.items():
        if code not in published:
            raise _bad(chain.caip2, f"takes {', '.join(published)}, not {code}")
        text = str(where or published[code])
        name = None if text == STX else asset_name(text)
        if (name is None) != (code == STX):
            raise _bad(chain.caip2, f"{code} cannot be {text}")
        if name is not None:
            _same_network(chain, name.contract.text, code)
        tokens.append(Token(ASSETS[code], name))
    return tuple(tokens)


def _same_network(chain: StacksNetwork, text: str, what: str) -> None:
    found = principal(text)
    address = found.address if isinstance(found, ContractPrincipal) else found
    if (address.network == "mainnet") != chain.mainnet:
        raise _bad(chain.caip2, f"{what} is an address of the other network")


def _url(network: str, text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise _bad(network, "relay and node are http(s) URLs")
    return text.rstrip("/")


def _bad(network: str, why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"{network} {why}")
