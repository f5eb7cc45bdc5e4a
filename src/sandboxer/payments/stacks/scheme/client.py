"""The paying side: `exact` on Stacks for `x402Client`. Signs a transfer that a relay will sponsor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from x402.schemas import PaymentRequirements

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.codec.post_conditions import AssetName
from sandboxer.payments.stacks.codec.signing import StacksKey
from sandboxer.payments.stacks.codec.transactions import write_transaction
from sandboxer.payments.stacks.networks import NETWORKS, PUBLISHED, SCHEME, STX
from sandboxer.payments.stacks.transfers import Order, asset_name, sponsored_transfer

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
