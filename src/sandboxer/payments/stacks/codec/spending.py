"""Who pays and who signed: the spending conditions of a transaction, of its origin and of a sponsor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from coincurve import PublicKey

from sandboxer.identity.signatures.c32 import (
    MAINNET_MULTI,
    MAINNET_SINGLE,
    TESTNET_MULTI,
    TESTNET_SINGLE,
    StacksAddress,
)
from sandboxer.identity.signatures.recovery import hash160
from sandboxer.payments.stacks.codec.cursor import Cursor, malformed

SIGNATURE_BYTES = 65
NO_SIGNATURE = bytes(SIGNATURE_BYTES)
_MULTISIG = frozenset({1, 3, 5, 7})


class HashMode(IntEnum):
    P2PKH = 0
    P2WPKH = 2


class KeyEncoding(IntEnum):
    COMPRESSED = 0
    UNCOMPRESSED = 1


@dataclass(frozen=True, slots=True)
class SpendingCondition:
    mode: HashMode
    signer: bytes
    nonce: int
    fee: int
    encoding: KeyEncoding = KeyEncoding.COMPRESSED
    # v, r, s: the other way round than most wallets' messages.
    signature: bytes = NO_SIGNATURE

    @property
    def signed(self) -> bool:
        return self.signature != NO_SIGNATURE

    def cleared(self) -> SpendingCondition:
        return replace(self, nonce=0, fee=0, signature=NO_SIGNATURE)

    def address(self, *, mainnet: bool) -> StacksAddress:
        single = self.mode is HashMode.P2PKH
        if mainnet:
            return StacksAddress(MAINNET_SINGLE if single else MAINNET_MULTI, self.signer)
        return StacksAddress(TESTNET_SINGLE if single else TESTNET_MULTI, self.signer)


# The sponsor's place in what the origin signs: nobody.
NOBODY = SpendingCondition(HashMode.P2PKH, bytes(20), 0, 0)
# What wallets put there until a sponsor comes: the hash of a public key of zeros.
UNSPONSORED = SpendingCondition(HashMode.P2PKH, hash160(bytes(33)), 0, 0)


def read_condition(cursor: Cursor) -> SpendingCondition:
    mode = cursor.number(1)
    if mode in _MULTISIG:
        raise malformed("several signers are not supported: pay from a single-signer address", "multisig")
    if mode not in (0, 2):
        raise malformed(f"hash mode {mode} is not known")
    signer, nonce, fee = cursor.take(20), cursor.number(8), cursor.number(8)
    encoding = KeyEncoding(cursor.one_of(frozenset(KeyEncoding), "key encoding"))
    if mode == HashMode.P2WPKH and encoding is not KeyEncoding.COMPRESSED:
        raise malformed("a segwit signer needs a compressed key")
    return SpendingCondition(HashMode(mode), signer, nonce, fee, encoding, cursor.take(SIGNATURE_BYTES))


def write_condition(condition: SpendingCondition) -> bytes:
    numbers = condition.nonce.to_bytes(8, "big") + condition.fee.to_bytes(8, "big")
    head = bytes([condition.mode]) + condition.signer + numbers
    return head + bytes([condition.encoding]) + condition.signature


def signer_of(key: PublicKey, mode: HashMode, encoding: KeyEncoding) -> bytes:
    """The hash that a condition names for this key."""
    key_hash = hash160(key.format(compressed=encoding is KeyEncoding.COMPRESSED))
    return key_hash if mode is HashMode.P2PKH else hash160(b"\x00\x14" + key_hash)
