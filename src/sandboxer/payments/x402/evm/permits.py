"""Which permit a transaction settled: read from its call to x402's proxy, as Permit2 tells nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import function_signature_to_4byte_selector
from x402.mechanisms.evm.constants import X402_UPTO_PERMIT2_PROXY_ADDRESS

_PERMIT = "((address,uint256),uint256,uint256)"
_REST = (_PERMIT, "uint256", "address", "(address,address,uint256)", "bytes")
_EIP2612 = "(uint256,uint256,bytes32,bytes32,uint8)"
_SELECTOR_BYTES = 4
# The arguments of each call that settles; the permit is the fifth from the end, its owner the third.
_CALLS = {
    function_signature_to_4byte_selector(f"{name}({','.join(types)})"): types
    for name, types in (("settle", _REST), ("settleWithPermit", (_EIP2612, *_REST)))
}


def settled_permit(transaction: Mapping[str, Any]) -> tuple[str, int] | None:
    """Payer and nonce; None for a transaction that is no call to the proxy."""
    if str(transaction.get("to") or "").lower() != X402_UPTO_PERMIT2_PROXY_ADDRESS.lower():
        return None
    try:
        data = bytes.fromhex(str(transaction["input"]).removeprefix("0x"))
        types = _CALLS[data[:_SELECTOR_BYTES]]
        # Whatever follows the arguments is somebody's mark, not ours to judge.
        given = decode(types, data[_SELECTOR_BYTES:], strict=False)
    except (KeyError, ValueError, DecodingError):
        return None
    permit, _, owner, _, _ = given[-len(_REST) :]
    return str(owner).lower(), int(permit[1])
