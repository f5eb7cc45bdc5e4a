"""Messages signed by Bitcoin wallets: BIP-137 (a recoverable signature) and BIP-322 "simple" (a witness).

The two cannot be taken for one another: BIP-137 is 65 bytes with a first byte of 27 to 42, which as the first
byte of a witness would promise that many items.
"""

from __future__ import annotations

import base64
import binascii

import bip322

from sandboxer.identity.signatures.bitcoin_addresses import BitcoinAddress, bitcoin_address
from sandboxer.identity.signatures.recovery import compact_size, double_sha256, hash160, recover
from sandboxer.identity.signatures.refusals import bad_address, bad_signature, malformed_signature

_LONGEST_SIGNATURE = 1024
# Newer wallets say which of BIP-322's forms follows.
_SIMPLE_PREFIX = "smp"
_BIP322_KINDS = frozenset({"p2sh", "p2wpkh", "p2tr"})


def verify_bitcoin(address: str, message: str, signature: str) -> None:
    """Raises unless the holder of `address` signed `message`, in either form.

    Says nothing about the network: whoever cares compares `bitcoin_address(…).network`.
    """
    parsed = bitcoin_address(address)
    text = signature.removeprefix(_SIMPLE_PREFIX)
    raw = _decoded(text)
    if len(raw) == 65 and 27 <= raw[0] <= 42:
        _verify_bip137(parsed, message, raw)
    else:
        _verify_bip322(parsed, message, text)


def bip137_digest(message: str) -> bytes:
    raw = message.encode()
    return double_sha256(b"\x18Bitcoin Signed Message:\n" + compact_size(len(raw)) + raw)


def _verify_bip137(address: BitcoinAddress, message: str, raw: bytes) -> None:
    """The first byte names the kind of address. 31 to 34 is taken for segwit too, as common wallets write it:
    the address still has to be that of the very key."""
    kind, recovery_id = divmod(raw[0] - 27, 4)
    key = recover(bip137_digest(message), raw[1:], recovery_id)
    if key is None:
        raise bad_signature("BIP-137")
    digest = hash160(key.format(compressed=kind > 0))
    nested = hash160(b"\x00\x14" + digest)
    accepted = {
        0: {("p2pkh", digest)},
        1: {("p2pkh", digest), ("p2sh", nested), ("p2wpkh", digest)},
        2: {("p2sh", nested)},
        3: {("p2wpkh", digest)},
    }[kind]
    if (address.kind, address.program) not in accepted:
        raise bad_signature("BIP-137")


def _verify_bip322(address: BitcoinAddress, message: str, signature: str) -> None:
    if address.kind == "p2pkh":
        raise malformed_signature("BIP-137", "65 bytes in base64, as a wallet of this kind of address gives")
    if address.kind not in _BIP322_KINDS:
        raise bad_address("supported Bitcoin", f"we cannot check signatures of {address.kind}")
    try:
        bip322.verify_simple_encoded(address.text, message, signature)
    except bip322.VerificationError:
        raise bad_signature("BIP-322") from None


def _decoded(signature: str) -> bytes:
    if len(signature) <= _LONGEST_SIGNATURE:
        try:
            return base64.b64decode(signature.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error):
            pass
    raise malformed_signature("Bitcoin", "base64, as the wallet gave it")
