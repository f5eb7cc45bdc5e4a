"""From an operator's words to the ways of an EVM network."""

from __future__ import annotations

from eth_utils.address import to_checksum_address
from x402.http import FacilitatorConfig, HTTPFacilitatorClient

from sandboxer.identity.signatures.evm import evm_address
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import ASSETS
from sandboxer.payments.x402.config import IN_PROCESS, NetworkSettings
from sandboxer.payments.x402.credentials import read_credentials
from sandboxer.payments.x402.evm.checks import why_unusable
from sandboxer.payments.x402.evm.node import Node
from sandboxer.payments.x402.evm.reading import ExactReader, UptoReader
from sandboxer.payments.x402.evm.settling import InProcess, Signer
from sandboxer.payments.x402.evm.watching import EvmWatcher
from sandboxer.payments.x402.opening import Opening
from sandboxer.payments.x402.ways import Accepted, Facilitator, Reader, Way

NAMESPACE = "eip155"
_V1_NAMES = {
    "eip155:1": ("ethereum",),
    "eip155:137": ("polygon",),
    "eip155:8453": ("base",),
    "eip155:84532": ("base-sepolia",),
    "eip155:43114": ("avalanche",),
    "eip155:43113": ("avalanche-fuji",),
}
_READERS: dict[str, Reader] = {"exact": ExactReader(), "upto": UptoReader()}


async def open_ways(network: NetworkSettings, opening: Opening) -> list[Way]:
    """One for each scheme. Raises InvalidRequest for what cannot work."""
    if network.rpc_url is None:
        raise _wrong(network, "rpc_url is missing: a node is asked what became of each payment")
    if unknown := set(network.schemes) - set(_READERS):
        raise _wrong(network, f"unknown scheme {min(unknown)}; known are exact and upto")
    pay_to = _checksummed(network.pay_to)
    facilitator, signer = _facilitator(network, opening)
    watchers = [
        EvmWatcher(
            Node(url, opening.client, network=network.network),
            opening.clock,
            pay_to=pay_to,
            carrier=signer if network.facilitator == IN_PROCESS else None,
            is_shared=_is_shared(network),
        )
        for url in (network.rpc_url, network.second_rpc_url)
        if url is not None
    ]
    accepts = tuple(_accepted(network))
    node = Node(network.rpc_url, opening.client, network=network.network)
    ways = []
    for scheme in network.schemes:
        extra = {}
        if scheme == "upto":
            if signer is None:
                raise _wrong(network, "upto needs options.facilitator_address, or the in-process facilitator")
            extra = {"assetTransferMethod": "permit2", "facilitatorAddress": signer}
        ways.append(
            Way(
                network=network.network,
                scheme=scheme,
                pay_to=pay_to,
                accepts=accepts,
                facilitator=facilitator,
                reader=_READERS[scheme],
                watcher=watchers[0],
                check=lambda: why_unusable(node, network.network, accepts),
                witness=watchers[1] if len(watchers) > 1 else None,
                confirmations=network.confirmations,
                missing_blocks=network.missing_blocks,
                settles_in_block=True,
                settles_less=scheme == "upto",
                extra=extra,
                v1_names=_V1_NAMES.get(network.network, ()) if scheme == "exact" else (),
            )
        )
    return ways


def _is_shared(network: NetworkSettings) -> bool:
    is_shared = network.options.get("shared_pay_to", False)
    if not isinstance(is_shared, bool):
        raise _wrong(network, "options.shared_pay_to is true or false")
    if is_shared and network.facilitator != IN_PROCESS:
        raise _wrong(
            network,
            "what an outside facilitator carries does not tell whom it was for: settle in process with a"
            " signer of this installation's own, or give it a pay_to of its own",
        )
    return is_shared


def _facilitator(network: NetworkSettings, opening: Opening) -> tuple[Facilitator, str | None]:
    if network.facilitator != IN_PROCESS:
        config = FacilitatorConfig(
            url=network.facilitator.rstrip("/"),
            timeout=opening.settle_timeout.total_seconds(),
            http_client=opening.client,
            auth_provider=read_credentials(network.facilitator_auth, network.facilitator),
        )
        address = network.options.get("facilitator_address")
        return HTTPFacilitatorClient(config), None if address is None else _checksummed(str(address))
    if opening.signer_key is None:
        raise _wrong(network, "settling in process needs signer_key_file or SANDBOXER_X402_SIGNER_KEY")
    try:
        signer = Signer(opening.signer_key, str(network.rpc_url), opening.settle_timeout.total_seconds())
    except ValueError:
        raise _wrong(network, "the signer's key is not a private key") from None
    own = InProcess(signer, network.network)
    return own, own.address


def _accepted(network: NetworkSettings) -> list[Accepted]:
    taken = []
    for given in network.assets:
        if not {"name", "version"} <= set(given.extra):
            raise _wrong(network, f"{given.code} needs name and version of its EIP-712 domain")
        taken.append(Accepted(asset=ASSETS[given.code], id=_checksummed(given.id), extra=dict(given.extra)))
    return taken


def _checksummed(address: str) -> str:
    """As the package's own signer demands it."""
    return to_checksum_address(evm_address(address))


def _wrong(network: NetworkSettings, why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"{network.network}: {why}")
