"""Monero's own base58 (blocks of eight bytes) and address bytes: enough to tell an address from a slip."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from Cryptodome.Hash import keccak

from sandboxer.kernel.errors import InvalidRequest

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT = {letter: value for value, letter in enumerate(_ALPHABET)}
# How many letters write how many bytes; other lengths do not occur.
_BYTES_OF_LETTERS = {0: 0, 2: 1, 3: 2, 5: 3, 6: 4, 7: 5, 9: 6, 10: 7, 11: 8}
_BLOCK = 11
_CHECKSUM = 4
_KEYS = 64
_PAYMENT_ID = 8

# First byte: standard, integrated (with a payment id), subaddress.
PREFIXES: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "mainnet": (18, 19, 42),
        "testnet": (53, 54, 63),
        "stagenet": (24, 25, 36),
        # Monero calls it fakechain, and gives it mainnet's addresses.
        "regtest": (18, 19, 42),
    }
)


def check_monero_address(text: str, network: str) -> None:
    raw = _decoded(text) if 90 <= len(text) <= 110 else None
    if raw is None or _checksum(raw[:-_CHECKSUM]) != raw[-_CHECKSUM:]:
        raise InvalidRequest(field="address", why="not a Monero address (its checksum is wrong)")
    standard, integrated, sub = PREFIXES[network]
    length = len(raw) - 1 - _CHECKSUM
    if (raw[0], length) not in {
        (standard, _KEYS),
        (sub, _KEYS),
        (integrated, _KEYS + _PAYMENT_ID),
    }:
        raise InvalidRequest(field="address", why=f"not an address of Monero's {network}")


def _checksum(raw: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=raw).digest()[:_CHECKSUM]


def _decoded(text: str) -> bytes | None:
    out = bytearray()
    for start in range(0, len(text), _BLOCK):
        block = text[start : start + _BLOCK]
        size = _BYTES_OF_LETTERS.get(len(block))
        if size is None or any(letter not in _DIGIT for letter in block):
            return None
        number = 0
        for letter in block:
            number = number * len(_ALPHABET) + _DIGIT[letter]
        if number >= 256**size:
            return None
        out += number.to_bytes(size, "big")
    return bytes(out)
