"""Is the node of the chain that was configured, are its tokens what they are taken for, does a search end?"""

from __future__ import annotations

from collections.abc import Sequence

from eth_abi.abi import decode, encode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.crypto import keccak

from sandboxer.payments.x402.evm.node import Node
from sandboxer.payments.x402.evm.watching import LOG_SPAN
from sandboxer.payments.x402.ways import Accepted

_DOMAIN = keccak(text="EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
_DECIMALS = function_signature_to_4byte_selector("decimals()")
_SEPARATOR = function_signature_to_4byte_selector("DOMAIN_SEPARATOR()")
_WORD = 32


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
    await node.call("eth_getLogs", [{"address": accepts[0].id, "topics": [_nothing()], **span}])
    return None


async def _why_another(node: Node, accepted: Accepted, chain: int) -> str | None:
    code, wanted = accepted.asset.code, accepted.asset.decimals
    told = await _read(node, accepted.id, _DECIMALS)
    if len(told) != _WORD:
        return f"{accepted.id} is no token there, {code} was expected"
    if (decimals := int.from_bytes(told)) != wanted:
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
    told = await _read(node, token, function_signature_to_4byte_selector("name()"))
    try:
        return str(decode(["string"], told)[0])
    except Exception:
        # Older tokens answer 32 bytes of text; a domain that nobody tells cannot be compared.
        return None


async def _read(node: Node, contract: str, data: bytes) -> bytes:
    answer = await node.call("eth_call", [{"to": contract, "data": "0x" + data.hex()}, "latest"])
    return bytes.fromhex(str(answer or "0x").removeprefix("0x"))


def _nothing() -> str:
    """An event that no token has: the node searches, and sends nothing."""
    return "0x" + keccak(text="sandboxer looks whether a search ends").hex()
