"""What an EVM payment says of itself: an EIP-3009 authorization (`exact`) or a Permit2 one (`upto`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eth_account.messages import encode_typed_data
from eth_utils.crypto import keccak
from x402.mechanisms.evm.constants import PERMIT2_ADDRESS, UPTO_PERMIT2_WITNESS_TYPES
from x402.mechanisms.evm.eip712 import hash_eip3009_authorization
from x402.mechanisms.evm.types import ExactEIP3009Payload, UptoPermit2Payload
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.identity.signatures.evm import evm_address
from sandboxer.identity.signatures.recovery import RS_BYTES, recover
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.x402.presented import whole_number
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
        return _signer(digest, signature) == found.authorization.from_address.lower()

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        return self.is_signed(payload, requirements)


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

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        try:
            found = UptoPermit2Payload.from_dict(payload.payload)
            signed = found.permit2_authorization
            message = {
                "permitted": {"token": signed.permitted.token, "amount": int(signed.permitted.amount)},
                "spender": signed.spender,
                "nonce": int(signed.nonce),
                "deadline": int(signed.deadline),
                "witness": {
                    "to": signed.witness.to,
                    "facilitator": signed.witness.facilitator,
                    "validAfter": int(signed.witness.valid_after),
                },
            }
            chain = int(requirements.network.partition(":")[2])
            domain = {"name": "Permit2", "chainId": chain, "verifyingContract": PERMIT2_ADDRESS}
            types = {name: list(fields) for name, fields in UPTO_PERMIT2_WITNESS_TYPES.items()}
            signable = encode_typed_data(domain, types, message)
            digest = keccak(b"\x19" + signable.version + signable.header + signable.body)
            signature = bytes.fromhex((found.signature or "").removeprefix("0x"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return _signer(digest, signature) == signed.from_address.lower()


def _signer(digest: bytes, signature: bytes) -> str | None:
    """The address of the key that signed; None: no key did."""
    if len(signature) != _SIGNATURE_BYTES:
        return None
    key = recover(
        digest, signature[:RS_BYTES], (signature[64] - 27) if signature[64] >= 27 else signature[64]
    )
    return None if key is None else "0x" + keccak(key.format(compressed=False)[1:])[-20:].hex()


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
