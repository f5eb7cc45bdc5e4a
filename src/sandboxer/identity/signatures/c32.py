"""Stacks addresses (c32check): a version, a hash, a checksum, in an alphabet without look-alikes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sandboxer.identity.signatures.recovery import double_sha256
from sandboxer.identity.signatures.refusals import bad_address

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HASH_BYTES = 20
_LONGEST = 41
MAINNET_SINGLE, TESTNET_SINGLE = 22, 26
MAINNET_MULTI, TESTNET_MULTI = 20, 21
_MAINNET = frozenset({MAINNET_SINGLE, MAINNET_MULTI})
_KNOWN = _MAINNET | {TESTNET_SINGLE, TESTNET_MULTI}
StacksNetwork = Literal["mainnet", "testnet"]


@dataclass(frozen=True, slots=True)
class StacksAddress:
    version: int
    hash160: bytes

    @property
    def text(self) -> str:
        return encode(self.version, self.hash160)

    @property
    def network(self) -> StacksNetwork:
        return "mainnet" if self.version in _MAINNET else "testnet"


def encode(version: int, hash160: bytes) -> str:
    return "S" + _ALPHABET[version] + _c32(hash160 + _checksum(version, hash160))


def stacks_address(text: str) -> StacksAddress:
    """Only the one canonical spelling passes: no small letters, no O for 0, no zeros left out."""
    if not (2 < len(text) <= _LONGEST and text[0] == "S" and all(c in _ALPHABET for c in text[1:])):
        raise bad_address("Stacks", "it is not S and c32 letters in capitals")
    version = _ALPHABET.index(text[1])
    if version not in _KNOWN:
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
    """One '0' per leading zero byte, as the reference does it."""
    number, letters = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 32)
        letters = _ALPHABET[digit] + letters
    return "0" * (len(raw) - len(raw.lstrip(b"\x00"))) + letters


def _checksum(version: int, hash160: bytes) -> bytes:
    return double_sha256(bytes([version]) + hash160)[:4]
