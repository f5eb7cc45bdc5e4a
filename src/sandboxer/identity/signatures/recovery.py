"""Recovers the public key that made a signature, on the curve that all our chains share.

A verifier that says no has one sentence for all wrong signatures; more would help forgers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sandboxer.kernel.errors import InvalidRequest, Unauthenticated
from sandboxer.kernel.late import late

if TYPE_CHECKING:
    import coincurve
    from Cryptodome.Hash import RIPEMD160
else:
    coincurve, RIPEMD160 = late("coincurve"), late("Cryptodome.Hash.RIPEMD160")

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
RS_BYTES = 64


def recover(digest: bytes, rs: bytes, recovery_id: int) -> coincurve.PublicKey | None:
    """Returns the key, or None. Of the two equivalent `s` only the smaller counts: a signature has one
    form.
    """
    if len(digest) != 32 or len(rs) != RS_BYTES or not 0 <= recovery_id <= 3:
        return None
    if int.from_bytes(rs[32:], "big") > _ORDER // 2:
        return None
    try:
        return coincurve.PublicKey.from_signature_and_message(rs + bytes([recovery_id]), digest, hasher=None)
    except ValueError:
        return None


def hash160(data: bytes) -> bytes:
    # Not from hashlib: OpenSSL 3 has it only where the operator loaded the legacy provider.
    return RIPEMD160.new(hashlib.sha256(data).digest()).digest()


def double_sha256(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def compact_size(number: int) -> bytes:
    """Writes a number as Bitcoin's length prefix."""
    if number < 0xFD:
        return bytes([number])
    if number <= 0xFFFF:
        return b"\xfd" + number.to_bytes(2, "little")
    return b"\xfe" + number.to_bytes(4, "little")


def bad_signature(scheme: str) -> Unauthenticated:
    return Unauthenticated(
        why=f"the signature is not one of this message by this address ({scheme})",
        reason="bad_signature",
        hint="Sign the exact text that was handed out, with the key of the address you name.",
    )


def malformed_signature(scheme: str, wanted: str) -> Unauthenticated:
    return Unauthenticated(
        why=f"the signature is not {wanted} ({scheme})",
        reason="malformed_signature",
        hint=f"Send it as {wanted}.",
    )


def bad_address(kind: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        field="address",
        why=f"not a {kind} address: {why}",
        reason="bad_address",
        hint="Copy the address from the wallet; one wrong letter breaks its checksum.",
    )
