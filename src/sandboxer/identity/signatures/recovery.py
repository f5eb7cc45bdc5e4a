"""The one curve all our chains share: which public key made this signature?"""

from __future__ import annotations

import hashlib

from coincurve import PublicKey
from Cryptodome.Hash import RIPEMD160

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
RS_BYTES = 64


def recover(digest: bytes, rs: bytes, recovery_id: int) -> PublicKey | None:
    """The key, or None. Of the two equivalent `s` only the smaller counts: a signature has one form."""
    if len(digest) != 32 or len(rs) != RS_BYTES or not 0 <= recovery_id <= 3:
        return None
    if int.from_bytes(rs[32:], "big") > _ORDER // 2:
        return None
    try:
        return PublicKey.from_signature_and_message(rs + bytes([recovery_id]), digest, hasher=None)
    except ValueError:
        return None


def hash160(data: bytes) -> bytes:
    # Not from hashlib: OpenSSL 3 has it only where the operator loaded the legacy provider.
    return RIPEMD160.new(hashlib.sha256(data).digest()).digest()


def double_sha256(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def compact_size(number: int) -> bytes:
    """Bitcoin's length prefix."""
    if number < 0xFD:
        return bytes([number])
    if number <= 0xFFFF:
        return b"\xfd" + number.to_bytes(2, "little")
    return b"\xfe" + number.to_bytes(4, "little")
