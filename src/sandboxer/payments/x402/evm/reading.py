"""What an EVM payment says of itself: an EIP-3009 authorization (`exact`) or a Permit2 one (`upto`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eth_utils.crypto import keccak
from x402.mechanisms.evm.eip712 import hash_eip3009_authorization
from x402.mechanisms.evm.types import ExactEIP3009Payload
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.identity.signatures.evm import evm_address
from sandboxer.identity.signatures.recovery import RS_BYTES, recover
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.x402.presenting import whole_number
from sandboxer.payments.x402.ways import Authorization

PERMIT2 = "permit2:"
_NONCE = re.compile(r"0x[0-9a-fA-F]{64}")
_SIGNATURE_BYTES = 65
# Far enough for any authorization, and still a date.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


class ExactReader:
    """EIP-3009: the token itself remembers the nonce, so one authorization moves money once."""

    def read(self, payload: PaymentPayload) -> Authorization:
        given = _part(payload.payload, "authorization")
        nonce = given.get("nonce")
        if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
            raise _wrong("authorization.nonce has 32 bytes in hex")
        return Authorization(
            payer=_address(given.get("from")),
            nonce=nonce.lower(),
            amount=whole_number(given.get("value"), "authorization.value"),
            valid_until=_moment(whole_number(given.get("validBefore"), "authorization.validBefore")),
        )

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """By a key of the payer's own. A contract's signature is known to the chain only: False."""
        try:
            found = ExactEIP3009Payload.from_dict(payload.payload)
            digest = hash_eip3009_authorization(
                found.authorization,
                int(requirements.network.partition(":")[2]),
                requirements.asset,
                str(requirements.extra.get("name")),
                str(requirements.extra.get("version")),
            )
            signature = bytes.fromhex((found.signature or "").removeprefix("0x"))
        except (ValueError, KeyError, TypeError):
            return False
        if len(signature) != _SIGNATURE_BYTES:
            return False
        key = recover(
            digest, signature[:RS_BYTES], (signature[64] - 27) if signature[64] >= 27 else signature[64]
        )
        if key is None:
            return False
        address = "0x" + keccak(key.format(compressed=False)[1:])[-20:].hex()
        return address == found.authorization.from_address.lower()


class UptoReader:
    """Permit2: its contract remembers the nonce, an unordered one of the payer's choice."""

    def read(self, payload: PaymentPayload) -> Authorization:
        given = _part(payload.payload, "permit2Authorization")
        permitted = _part(given, "permitted")
        nonce = whole_number(given.get("nonce"), "permit2Authorization.nonce")
        return Authorization(
            payer=_address(given.get("from")),
            nonce=f"{PERMIT2}{nonce}",
            amount=whole_number(permitted.get("amount"), "permitted.amount"),
            valid_until=_moment(whole_number(given.get("deadline"), "permit2Authorization.deadline")),
        )

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """Left to the facilitator: False."""
        return False


def _part(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = given.get(name)
    if not isinstance(part, Mapping):
        raise _wrong(f"it has no {name}")
    return part


def _address(text: object) -> str:
    if not isinstance(text, str):
        raise _wrong("the payer is an address")
    return evm_address(text).lower()


def _moment(seconds: int) -> datetime:
    return _LATEST if seconds >= _LATEST.timestamp() else datetime.fromtimestamp(seconds, UTC)


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="PAYMENT-SIGNATURE", why=why, reason="invalid_payload")
