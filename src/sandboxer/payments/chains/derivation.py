"""A fresh address per invoice from the operator's extended public key: the server never holds what spends.

The key is that of an account (`m/84h/0h/0h` and the like); addresses are its receive branch, `0/index`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from embit import base58
from embit.bip32 import HDKey
from embit.hashes import hash160

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.addresses import Network, address_of

_SERIALIZED = 78
_PRIVATE_MARK = 0x00
_XPUB = b"\x04\x88\xb2\x1e"
MAX_INDEX = 2**31 - 1


class Script(StrEnum):
    P2PKH = "p2pkh"
    P2SH_P2WPKH = "p2sh-p2wpkh"
    P2WPKH = "p2wpkh"


# SLIP-132: the version bytes of an extended key say what its addresses look like. The rest (xpub, Ltub, dgub,
# tpub) say nothing, and the coin's present custom is taken.
_SCRIPT_OF_VERSION: Mapping[bytes, Script] = MappingProxyType(
    {
        bytes.fromhex("049d7cb2"): Script.P2SH_P2WPKH,  # ypub
        bytes.fromhex("044a5262"): Script.P2SH_P2WPKH,  # upub
        bytes.fromhex("01b26ef6"): Script.P2SH_P2WPKH,  # Mtub
        bytes.fromhex("04b24746"): Script.P2WPKH,  # zpub
        bytes.fromhex("045f1cf6"): Script.P2WPKH,  # vpub
    }
)


@dataclass(frozen=True)
class AccountKey:
    """An account's extended public key, on one network, with the kind of address it makes."""

    key: HDKey
    network: Network
    script: Script

    def output_script(self, index: int, *, branch: int = 0) -> bytes:
        if not 0 <= index <= MAX_INDEX:
            raise InvalidRequest(field="index", why=f"{index} is not between 0 and {MAX_INDEX}")
        return output_script(self.key.derive([branch, index]).sec(), self.script)

    def address(self, index: int, *, branch: int = 0) -> str:
        address = address_of(self.output_script(index, branch=branch), self.network)
        assert address is not None, "every kind of script here has an address"
        return address


def read_account_key(text: str, network: Network, script: Script | None = None) -> AccountKey:
    """Reads xpub, ypub, zpub, Ltub, Mtub, dgub, tpub, upub, vpub; refuses private keys and nonsense."""
    try:
        raw: bytes = base58.decode_check(text.strip())
    except (ValueError, KeyError):
        raise InvalidRequest(field="xpub", why="not an extended key (its checksum is wrong)") from None
    if len(raw) != _SERIALIZED:
        raise InvalidRequest(field="xpub", why="not an extended key (its length is wrong)")
    if raw[45] == _PRIVATE_MARK:
        raise InvalidRequest(
            field="xpub", why="this key can spend; give the server the public one (xpub, ypub, zpub)"
        )
    kind = script or _SCRIPT_OF_VERSION.get(raw[:4]) or _custom(network)
    if kind is not Script.P2PKH and network.hrp is None:
        raise InvalidRequest(field="xpub", why=f"{network.coin} has no witness programs")
    try:
        # The library knows Bitcoin's version bytes only; they matter no more from here on.
        key = HDKey.parse(_XPUB + raw[4:])
    except ValueError:
        raise InvalidRequest(field="xpub", why="not an extended key (no point on the curve)") from None
    return AccountKey(key, network, kind)


def _custom(network: Network) -> Script:
    return Script.P2PKH if network.hrp is None else Script.P2WPKH


def output_script(public_key: bytes, kind: Script) -> bytes:
    hashed = bytes(hash160(public_key))
    if kind is Script.P2PKH:
        return b"\x76\xa9\x14" + hashed + b"\x88\xac"
    witness = b"\x00\x14" + hashed
    if kind is Script.P2WPKH:
        return witness
    return b"\xa9\x14" + bytes(hash160(witness)) + b"\x87"
