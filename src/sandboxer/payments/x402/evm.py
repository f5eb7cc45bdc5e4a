"""From an operator's words to the ways of an EVM network.

Is the node of the chain that was configured, are its tokens what they are taken for, does a search end?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eth_abi.abi import decode, encode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from x402.http import FacilitatorConfig, HTTPFacilitatorClient

from sandboxer.identity.signatures.wallets import evm_address
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.x402.evm_schemes import ExactReader, InProcess, Signer, UptoReader, read_credentials
from sandboxer.payments.x402.evm_watcher import LOG_SPAN, EvmWatcher, Node
from sandboxer.payments.x402.ways import (
    IN_PROCESS,
    Accepted,
    Facilitator,
    NetworkSettings,
    Opening,
    Reader,
    Way,
)

_V1_NAMES = {
    "eip155:1": ("ethereum",),
    "eip155:137": ("polygon",),
    "eip155:8453": ("base",),
    "eip155:84532": ("base-sepolia",),
    "eip155:43114": ("avalanche",),
    "eip155:43113": ("avalanche-fuji",),
}
_READERS: dict[str, Reader] = {"exact": ExactReader(), "upto": UptoReader()}
_DOMAIN = keccak(text="EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
_DECIMALS = function_signature_to_4byte_selector("decimals()")
_SEPARATOR = function_signature_to_4byte_selector("DOMAIN_SEPARATOR()")
_WORD = 32
# An event that no token has: the node searches, and sends nothing.
_NOTHING = "0x" + keccak(text="sandboxer looks whether a search ends").hex()


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
    for given in network.assets:
        if not {"name", "version"} <= set(given.extra):
            raise _wrong(network, f"{given.asset.code} needs name and version of its EIP-712 domain")
    return [replace(given, id=_checksummed(given.id)) for given in network.assets]


def _checksummed(address: str) -> str:
    """As the package's own signer demands it."""
    return to_checksum_address(evm_address(address))


def _wrong(network: NetworkSettings, why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"{network.network}: {why}")


async def why_unusable(node: Node, network: str, accepts: Sequence[Accepted]) -> str | None:
    """None: all is as configured. Raises ChainUnavailable."""
    chain = int(await node.call("eth_chainId", []), 16)
    if f"eip155:{chain}" != network:
        return f"its node is of eip155:{chain}"
    for accepted in accepts:
        if (why := await _why_another(node, accepted, chain)) is not None:
            return why
    head = int(await node.call("eth_blockNumber", []), 16)
    # As payments are searched for: a node that refuses, or takes too long, could not tell what became of one.
    span = {"fromBlock": hex(max(0, head - LOG_SPAN + 1)), "toBlock": hex(head)}
    await node.call("eth_getLogs", [{"address": accepts[0].id, "topics": [_NOTHING], **span}])
    return None


async def _why_another(node: Node, accepted: Accepted, chain: int) -> str | None:
    code, wanted = accepted.asset.code, accepted.asset.decimals
    answer = await _read(node, accepted.id, _DECIMALS)
    if len(answer) != _WORD:
        return f"{accepted.id} is no token there, {code} was expected"
    if (decimals := int.from_bytes(answer)) != wanted:
        return f"{accepted.id} has {decimals} decimals, {code} has {wanted}"
    name, version = str(accepted.extra["name"]), str(accepted.extra["version"])
    separator = await _read(node, accepted.id, _SEPARATOR)
    if len(separator) == _WORD and separator != _domain_separator(accepted.id, name, version, chain):
        return f"{code}: name {name!r} and version {version!r} are not those of the token's EIP-712 domain"
    if len(separator) != _WORD and (found := await _name(node, accepted.id)) not in (None, name):
        return f"{code}: the token calls itself {found!r}, not {name!r}"
    return None


def _domain_separator(token: str, name: str, version: str, chain: int) -> bytes:
    values = [_DOMAIN, keccak(text=name), keccak(text=version), chain, token]
    return keccak(encode(["bytes32", "bytes32", "bytes32", "uint256", "address"], values))


async def _name(node: Node, token: str) -> str | None:
    answer = await _read(node, token, function_signature_to_4byte_selector("name()"))
    try:
        return str(decode(["string"], answer)[0])
    except Exception:
        # Older tokens answer 32 bytes of text; a domain that nobody tells cannot be compared.
        return None


async def _read(node: Node, contract: str, data: bytes) -> bytes:
    answer = await node.call("eth_call", [{"to": contract, "data": "0x" + data.hex()}, "latest"])
    return bytes.fromhex(str(answer or "0x").removeprefix("0x"))
