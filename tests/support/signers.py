"""Wallets for tests: they sign as the real ones do, so that attacks can be made from honest parts."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from coincurve import PrivateKey

from sandboxer.identity.signatures.bitcoin import bip137_digest, double_sha256, hash160
from sandboxer.identity.signatures.stacks import (
    MAINNET_SINGLE,
    TESTNET_SINGLE,
    Sip018Domain,
    Value,
    encode,
    sip018_digest,
    stacks_message_digest,
)
from sandboxer.identity.signatures.wallets import _keccak, eip191_digest

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@dataclass(frozen=True)
class Signer:
    key: PrivateKey

    @classmethod
    def named(cls, label: str) -> Signer:
        return cls(PrivateKey(hashlib.sha256(f"test {label}".encode()).digest()))

    def _sign(self, digest: bytes) -> bytes:
        return self.key.sign_recoverable(digest, hasher=None)

    @property
    def evm(self) -> str:
        return "0x" + _keccak(self.key.public_key.format(compressed=False)[1:])[12:].hex()

    def sign_evm(self, message: str) -> str:
        raw = self._sign(eip191_digest(message))
        return "0x" + (raw[:64] + bytes([raw[64] + 27])).hex()

    @property
    def stx(self) -> str:
        return encode(MAINNET_SINGLE, hash160(self.key.public_key.format()))

    @property
    def stx_testnet(self) -> str:
        return encode(TESTNET_SINGLE, hash160(self.key.public_key.format()))

    def sign_sip018(self, domain: Sip018Domain, message: Value) -> str:
        return self._sign(sip018_digest(domain, message)).hex()

    def sign_stx(self, message: str) -> str:
        return self._sign(stacks_message_digest(message)).hex()

    @property
    def btc(self) -> str:
        """p2pkh on mainnet."""
        raw = b"\x00" + hash160(self.key.public_key.format())
        raw += double_sha256(raw)[:4]
        number, letters = int.from_bytes(raw, "big"), ""
        while number:
            number, digit = divmod(number, 58)
            letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[digit] + letters
        return "1" * (len(raw) - len(raw.lstrip(b"\x00"))) + letters

    def sign_btc(self, message: str) -> str:
        raw = self._sign(bip137_digest(message))
        return base64.b64encode(bytes([31 + raw[64]]) + raw[:64]).decode()


def high_s(raw: bytes) -> bytes:
    """The other signature of the same message by the same key, r s v with v in 0, 1."""
    s = ORDER - int.from_bytes(raw[32:64], "big")
    return raw[:32] + s.to_bytes(32, "big") + bytes([raw[64] ^ 1])
