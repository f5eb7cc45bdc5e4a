"""Verifies EIP-191 `personal_sign`, as every EVM wallet does it. Contract wallets (EIP-1271) would need a
chain.

Written over coincurve and keccak: the usual library takes a second and 25 MB to import for these few lines
(its signatures are test vectors here).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxer.identity.signatures.recovery import bad_address, bad_signature, malformed_signature, recover
from sandboxer.kernel.late import late

if TYPE_CHECKING:
    from Cryptodome.Hash import keccak
else:
    keccak = late("Cryptodome.Hash.keccak")

_SCHEME = "EIP-191"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_SIGNATURE = re.compile(r"0x[0-9a-fA-F]{130}|[0-9a-fA-F]{130}")


def evm_address(text: str) -> str:
    """Returns an address in lower case. Mixed case is a checksum (EIP-55) and has to be right."""
    if _ADDRESS.fullmatch(text) is None:
        raise bad_address("EVM", "it is not 0x and 40 hex digits")
    digits = text[2:]
    if digits not in (digits.lower(), digits.upper()) and _checksummed(digits.lower()) != digits:
        raise bad_address("EVM", "the capital letters are not its checksum")
    return text.lower()


def recover_evm(message: str, signature: str) -> str:
    """Returns the address (lower case) that signed `message`. It proves something only beside an expected
    one, or as the answer to a challenge.
    """
    if _SIGNATURE.fullmatch(signature) is None:
        raise malformed_signature(_SCHEME, "65 bytes r, s, v in hex")
    raw = bytes.fromhex(signature.removeprefix("0x"))
    recovery_id = {0: 0, 1: 1, 27: 0, 28: 1}.get(raw[64])
    if recovery_id is None:
        raise malformed_signature(_SCHEME, "65 bytes r, s, v in hex, with v one of 0, 1, 27, 28")
    key = recover(eip191_digest(message), raw[:64], recovery_id)
    if key is None:
        raise bad_signature(_SCHEME)
    return "0x" + _keccak(key.format(compressed=False)[1:])[12:].hex()


def verify_evm(address: str, message: str, signature: str) -> None:
    if recover_evm(message, signature) != evm_address(address):
        raise bad_signature(_SCHEME)


def eip191_digest(message: str) -> bytes:
    raw = message.encode()
    return _keccak(b"\x19Ethereum Signed Message:\n" + str(len(raw)).encode() + raw)


def checksummed(address: str) -> str:
    """Writes an address as EIP-55 does, which sign-in messages require."""
    return "0x" + _checksummed(evm_address(address)[2:])


def _checksummed(digits: str) -> str:
    nibbles = _keccak(digits.encode()).hex()
    return "".join(
        letter.upper() if int(nibble, 16) >= 8 else letter
        for letter, nibble in zip(digits, nibbles, strict=False)
    )


def _keccak(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()
