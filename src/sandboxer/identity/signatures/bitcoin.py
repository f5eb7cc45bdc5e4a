"""Verifies messages signed by Bitcoin wallets: BIP-137 (a recoverable signature) and BIP-322 "simple" (a
witness).

The two cannot be taken for one another: BIP-137 is 65 bytes with a first byte of 27 to 42, which as the first
byte of a witness would promise that many items.

`bitcoin_address` takes an address apart: network, kind, hash. Two spellings of one address become one.

`recover` gives the public key that made a signature, on the curve that all our chains share. A verifier that
says no has one sentence for all wrong signatures; more would help forgers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Literal

from sandboxer.kernel.errors import InvalidRequest, Unauthenticated
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class

if TYPE_CHECKING:
    import bip322
    import coincurve
    from Cryptodome.Hash import RIPEMD160
else:
    bip322, coincurve = late("bip322"), late("coincurve")
    RIPEMD160 = late("Cryptodome.Hash.RIPEMD160")

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
RS_BYTES = 64
_LONGEST_SIGNATURE = 1024
# Newer wallets say which of BIP-322's forms follows.
_SIMPLE_PREFIX = "smp"
_BIP322_KINDS = frozenset({"p2sh", "p2wpkh", "p2tr"})
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_CONST, _BECH32M_CONST = 1, 0x2BC830A3
_LONGEST = 90
_VERSIONS: dict[int, tuple[Network, Kind]] = {
    0x00: ("mainnet", "p2pkh"),
    0x05: ("mainnet", "p2sh"),
    0x6F: ("testnet", "p2pkh"),
    0xC4: ("testnet", "p2sh"),
}
_PREFIXES: dict[str, Network] = {"bc": "mainnet", "tb": "testnet", "bcrt": "regtest"}
Network = Literal["mainnet", "testnet", "regtest"]
Kind = Literal["p2pkh", "p2sh", "p2wpkh", "p2wsh", "p2tr"]


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


@value_class
class BitcoinAddress:
    # The one spelling we store, compare and cache by.
    text: str
    # Base58 addresses of testnet and regtest look alike: those say testnet.
    network: Network
    kind: Kind
    program: bytes


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
    """Verifies a BIP-137 signature. Its first byte names the kind of address. 31 to 34 is taken for
    segwit too, as common wallets write it: the address still has to be that of the very key.
    """
    kind, recovery_id = divmod(raw[0] - 27, 4)
    if (key := recover(bip137_digest(message), raw[1:], recovery_id)) is None:
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


def bitcoin_address(text: str) -> BitcoinAddress:
    """Parses an address. Raises InvalidRequest unless `text` is a well-formed one of a kind we know."""
    if len(text) > _LONGEST or not text.isascii():
        raise _bad("too long, or not ASCII")
    prefix, separator, _ = text.rpartition("1")
    return _segwit(text) if separator and prefix.lower() in _PREFIXES else _base58(text)


def _base58(text: str) -> BitcoinAddress:
    number = 0
    for letter in text:
        if (digit := _BASE58.find(letter)) < 0:
            raise _bad("a letter that base 58 does not have")
        number = number * 58 + digit
    leading = len(text) - len(text.lstrip("1"))
    raw = bytes(leading) + number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(raw) != 25 or double_sha256(raw[:21])[:4] != raw[21:]:
        raise _bad("its checksum is wrong")
    if raw[0] not in _VERSIONS:
        raise _bad("another chain's version byte")
    network, kind = _VERSIONS[raw[0]]
    return BitcoinAddress(text=text, network=network, kind=kind, program=raw[1:21])


def _segwit(text: str) -> BitcoinAddress:
    if text not in (text.lower(), text.upper()):
        raise _bad("it mixes capital and small letters")
    text = text.lower()
    prefix, _, data = text.rpartition("1")
    values = [_BECH32.find(letter) for letter in data]
    if len(values) < 8 or min(values) < 0:
        raise _bad("a letter that bech32 does not have")
    expanded = [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix]
    version = values[0]
    if _polymod(expanded + values) != (_BECH32M_CONST if version else _BECH32_CONST):
        raise _bad("its checksum is wrong")
    program = _eight_bit(values[1:-6])
    kinds: dict[tuple[int, int], Kind] = {(0, 20): "p2wpkh", (0, 32): "p2wsh", (1, 32): "p2tr"}
    if (kind := kinds.get((version, len(program)))) is None:
        raise _bad("a kind of output we do not know")
    return BitcoinAddress(text=text, network=_PREFIXES[prefix], kind=kind, program=program)


def _polymod(values: list[int]) -> int:
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= generator if (top >> bit) & 1 else 0
    return check


def _eight_bit(values: list[int]) -> bytes:
    number, bits = 0, 5 * len(values)
    for value in values:
        number = number << 5 | value
    if (padding := bits % 8) > 4 or number & ((1 << padding) - 1):
        raise _bad("its padding is wrong")
    return (number >> padding).to_bytes(bits // 8, "big")


def _bad(why: str) -> Exception:
    return bad_address("Bitcoin", why)
