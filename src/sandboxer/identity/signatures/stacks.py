"""What Stacks wallets sign: structured data (SIP-018) and plain messages.

Wallets order the 65 bytes differently (r s v, or v r s), count v from 0 or 27, or leave it out. So every
reading is tried, and one has to give the expected address: a recovered key alone proves nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sandboxer.identity.signatures.c32 import (
    MAINNET_SINGLE,
    TESTNET_SINGLE,
    StacksAddress,
    stacks_address,
)
from sandboxer.identity.signatures.clarity import Ascii, UInt, Value, serialize
from sandboxer.identity.signatures.recovery import compact_size, hash160, recover
from sandboxer.identity.signatures.refusals import bad_address, bad_signature, malformed_signature

_HEX = re.compile(r"(0x)?([0-9a-fA-F]{130}|[0-9a-fA-F]{128})")
MAINNET_CHAIN_ID, TESTNET_CHAIN_ID = 1, 2147483648
_SINGLE = frozenset({MAINNET_SINGLE, TESTNET_SINGLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sip018Domain:
    name: str
    version: str
    chain_id: int = MAINNET_CHAIN_ID

    def as_value(self) -> Value:
        return {
            "name": Ascii(self.name),
            "version": Ascii(self.version),
            "chain-id": UInt(self.chain_id),
        }


def sip018_digest(domain: Sip018Domain, message: Value) -> bytes:
    hashes = (hashlib.sha256(serialize(value)).digest() for value in (domain.as_value(), message))
    return hashlib.sha256(b"SIP018" + b"".join(hashes)).digest()


def stacks_message_digest(message: str) -> bytes:
    raw = message.encode()
    return hashlib.sha256(b"\x17Stacks Signed Message:\n" + compact_size(len(raw)) + raw).digest()


def verify_sip018(address: str, domain: Sip018Domain, message: Value, signature: str) -> None:
    """Raises unless the holder of `address` signed; the domain's chain must be the address's own."""
    parsed = stacks_address(address)
    expected_chain = MAINNET_CHAIN_ID if parsed.network == "mainnet" else TESTNET_CHAIN_ID
    if domain.chain_id != expected_chain:
        raise bad_signature("SIP-018")
    _verify(parsed, sip018_digest(domain, message), signature, "SIP-018")


def verify_stacks_message(address: str, message: str, signature: str) -> None:
    _verify(stacks_address(address), stacks_message_digest(message), signature, "Stacks message")


def _verify(address: StacksAddress, digest: bytes, signature: str, scheme: str) -> None:
    if address.version not in _SINGLE:
        raise bad_address("supported Stacks", "addresses of several signers cannot sign messages")
    if _HEX.fullmatch(signature) is None:
        raise malformed_signature(scheme, "64 or 65 bytes in hex")
    for rs, recovery_id in _readings(bytes.fromhex(signature.removeprefix("0x"))):
        key = recover(digest, rs, recovery_id)
        if key is not None and hash160(key.format()) == address.hash160:
            return
    raise bad_signature(scheme)


def _readings(raw: bytes) -> Iterator[tuple[bytes, int]]:
    if len(raw) == 64:
        yield raw, 0
        yield raw, 1
        return
    for rs, v in ((raw[:64], raw[64]), (raw[1:], raw[0])):
        recovery_id = v - 27 if v >= 27 else v
        if recovery_id in (0, 1):
            yield rs, recovery_id
