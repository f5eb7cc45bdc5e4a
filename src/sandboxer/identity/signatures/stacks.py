"""Verifies what Stacks wallets sign: structured data (SIP-018) and plain messages, with addresses and Clarity
values.

Wallets order the 65 bytes differently (r s v, or v r s), count v from 0 or 27, or leave it out. So every
reading is tried, and one has to give the expected address: a recovered key alone proves nothing.

A Stacks address (c32check) is a version, a hash, a checksum, in an alphabet without look-alikes. `serialize`
writes Clarity values as bytes (SIP-005): what SIP-018 hashes and transactions carry. Reading is in payments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from sandboxer.identity.signatures.bitcoin import (
    bad_address,
    bad_signature,
    compact_size,
    double_sha256,
    hash160,
    malformed_signature,
    recover,
)
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import brief_value_class, value_class

_HEX = re.compile(r"(0x)?([0-9a-fA-F]{130}|[0-9a-fA-F]{128})")
MAINNET_CHAIN_ID, TESTNET_CHAIN_ID = 1, 2147483648
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HASH_BYTES = 20
_LONGEST = 41
MAINNET_SINGLE, TESTNET_SINGLE = 22, 26
_SINGLE = frozenset({MAINNET_SINGLE, TESTNET_SINGLE})
MAINNET_MULTI, TESTNET_MULTI = 20, 21
_MAINNET = frozenset({MAINNET_SINGLE, MAINNET_MULTI})
_KNOWN = _MAINNET | {TESTNET_SINGLE, TESTNET_MULTI}
_LONGEST_NAME = 128
_LONGEST_CONTRACT_NAME = 40


@value_class
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


StacksNetwork = Literal["mainnet", "testnet"]


@brief_value_class
class StacksAddress:
    version: int
    hash160: bytes

    @property
    def text(self) -> str:
        return encode(self.version, self.hash160)

    @property
    def network(self) -> StacksNetwork:
        return "mainnet" if self.version in _MAINNET else "testnet"


@brief_value_class
class UInt:
    value: int


@brief_value_class
class Int:
    value: int


@brief_value_class
class Ascii:
    value: str


@brief_value_class
class Utf8:
    value: str


@brief_value_class
class ContractPrincipal:
    address: StacksAddress
    name: str

    @property
    def text(self) -> str:
        return f"{self.address.text}.{self.name}"


@brief_value_class
class Some:
    value: Value


@brief_value_class
class Ok:
    value: Value


@brief_value_class
class Err:
    value: Value


# A Python tuple is a Clarity list, a mapping is a Clarity tuple, None is none; an address is a principal.
Value = (
    UInt
    | Int
    | Ascii
    | Utf8
    | bool
    | bytes
    | None
    | StacksAddress
    | ContractPrincipal
    | Some
    | Ok
    | Err
    | tuple["Value", ...]
    | Mapping[str, "Value"]
)


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


def encode(version: int, hash160: bytes) -> str:
    return "S" + _ALPHABET[version] + _c32(hash160 + _checksum(version, hash160))


def stacks_address(text: str) -> StacksAddress:
    """Parses an address. Accepts only the canonical spelling: no small letters, no O for 0, no zeros left
    out.
    """
    if not (2 < len(text) <= _LONGEST and text[0] == "S" and all(c in _ALPHABET for c in text[1:])):
        raise bad_address("Stacks", "it is not S and c32 letters in capitals")
    if (version := _ALPHABET.index(text[1])) not in _KNOWN:
        raise bad_address("Stacks", "it begins with none of SP, SM, ST, SN")
    number = 0
    for letter in text[2:]:
        number = number * 32 + _ALPHABET.index(letter)
    raw = number.to_bytes(max(_HASH_BYTES + 4, (number.bit_length() + 7) // 8), "big")
    hash160, checksum = raw[:_HASH_BYTES], raw[_HASH_BYTES:]
    if len(raw) != _HASH_BYTES + 4 or checksum != _checksum(version, hash160):
        raise bad_address("Stacks", "its checksum is wrong")
    address = StacksAddress(version, hash160)
    if address.text != text:
        raise bad_address("Stacks", "it is not in its shortest form")
    return address


def _c32(raw: bytes) -> str:
    """Encodes in c32 with one '0' per leading zero byte, as the reference does."""
    number, letters = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 32)
        letters = _ALPHABET[digit] + letters
    return "0" * (len(raw) - len(raw.lstrip(b"\x00"))) + letters


def _checksum(version: int, hash160: bytes) -> bytes:
    return double_sha256(bytes([version]) + hash160)[:4]


def serialize(value: Value) -> bytes:
    """Serializes a Clarity value. Raises InvalidRequest for what Clarity cannot express."""
    match value:
        case bool():
            return b"\x03" if value else b"\x04"
        case None:
            return b"\x09"
        case Int(value=number):
            return b"\x00" + _sixteen(number, signed=True)
        case UInt(value=number):
            return b"\x01" + _sixteen(number, signed=False)
        case bytes():
            return b"\x02" + _counted(value)
        case StacksAddress():
            return b"\x05" + _address(value)
        case ContractPrincipal(address=address, name=name):
            return b"\x06" + _address(address) + _named(name, _LONGEST_CONTRACT_NAME)
        case Ok(value=inner):
            return b"\x07" + serialize(inner)
        case Err(value=inner):
            return b"\x08" + serialize(inner)
        case Some(value=inner):
            return b"\x0a" + serialize(inner)
        case Ascii(value=text):
            return b"\x0d" + _counted(_ascii(text))
        case Utf8(value=text):
            return b"\x0e" + _counted(text.encode())
        case Mapping():
            return b"\x0c" + _tuple(value)
        case tuple():
            return b"\x0b" + len(value).to_bytes(4, "big") + b"".join(serialize(item) for item in value)
    raise InvalidRequest(field="message", why=f"Clarity has no value like {type(value).__name__}")


def _sixteen(number: int, *, signed: bool) -> bytes:
    try:
        return number.to_bytes(16, "big", signed=signed)
    except OverflowError:
        raise InvalidRequest(field="message", why="a number beyond 128 bits") from None


def _ascii(text: str) -> bytes:
    if not text.isascii():
        raise InvalidRequest(field="message", why="string-ascii holds ASCII only")
    return text.encode("ascii")


def _counted(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def _tuple(value: Mapping[str, Value]) -> bytes:
    """Serializes a tuple with its keys in order, so that equal tuples have equal bytes."""
    parts = [len(value).to_bytes(4, "big")]
    for name in sorted(value):
        parts.append(_named(name, _LONGEST_NAME) + serialize(value[name]))
    return b"".join(parts)


def _named(name: str, longest: int) -> bytes:
    raw = _ascii(name)
    if not 0 < len(raw) <= longest:
        raise InvalidRequest(field="message", why=f"a name of 1 to {longest} letters is needed")
    return bytes([len(raw)]) + raw


def _address(address: StacksAddress) -> bytes:
    return bytes([address.version]) + address.hash160
