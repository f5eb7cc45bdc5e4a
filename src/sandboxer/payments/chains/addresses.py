"""Addresses of the Bitcoin family: which bytes mark which coin and network, and the script behind a text.

A coin sent to an address of another coin is lost, and several coins share prefixes on their test networks;
so a text is always read for one network, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from embit import base58, bech32

from sandboxer.kernel.errors import InvalidRequest

MAINNET = "mainnet"


@dataclass(frozen=True)
class Network:
    coin: str
    name: str
    p2pkh: int
    # The first is written; older ones are read too.
    p2sh: tuple[int, ...]
    # None: the coin has no witness programs.
    hrp: str | None


NETWORKS: Mapping[tuple[str, str], Network] = MappingProxyType(
    {
        (network.coin, network.name): network
        for network in (
            Network("BTC", MAINNET, 0x00, (0x05,), "bc"),
            Network("BTC", "testnet", 0x6F, (0xC4,), "tb"),
            Network("BTC", "regtest", 0x6F, (0xC4,), "bcrt"),
            # 0x05 is Bitcoin's byte: a refund "to Litecoin" must not be readable as both, so only 0x32.
            Network("LTC", MAINNET, 0x30, (0x32,), "ltc"),
            Network("LTC", "testnet", 0x6F, (0x3A,), "tltc"),
            Network("LTC", "regtest", 0x6F, (0x3A,), "rltc"),
            Network("DOGE", MAINNET, 0x1E, (0x16,), None),
            Network("DOGE", "testnet", 0x71, (0xC4,), None),
            Network("DOGE", "regtest", 0x6F, (0xC4,), None),
        )
    }
)


def network_of(coin: str, name: str = MAINNET) -> Network:
    try:
        return NETWORKS[coin, name]
    except KeyError:
        raise InvalidRequest(field="network", why=f"{coin} has no network {name!r}") from None


def script_of(address: str, network: Network) -> bytes:
    """The output script that pays this address."""
    script = _witness_script(address, network) or _hash_script(address, network)
    if script is None:
        raise InvalidRequest(field="address", why=f"not an address of {network.coin} {network.name}")
    return script


def _witness_script(address: str, network: Network) -> bytes | None:
    if network.hrp is None or not address.lower().startswith(network.hrp + "1"):
        return None
    try:
        version, program = bech32.decode(network.hrp, address)
    except (ValueError, TypeError, IndexError):
        return None
    if version is None or program is None:
        return None
    return bytes([0x50 + version if version else 0, len(program), *program])


def _hash_script(address: str, network: Network) -> bytes | None:
    if not 26 <= len(address) <= 36:
        return None
    try:
        raw: bytes = base58.decode_check(address)
    except (ValueError, KeyError):
        return None
    if len(raw) != 21:
        return None
    if raw[0] == network.p2pkh:
        return b"\x76\xa9\x14" + raw[1:] + b"\x88\xac"
    if raw[0] in network.p2sh:
        return b"\xa9\x14" + raw[1:] + b"\x87"
    return None


def address_of(script: bytes, network: Network) -> str | None:
    """The address of an output script; None for scripts that have none on this network."""
    if len(script) == 25 and script.startswith(b"\x76\xa9\x14") and script.endswith(b"\x88\xac"):
        return str(base58.encode_check(bytes([network.p2pkh]) + script[3:23]))
    if len(script) == 23 and script.startswith(b"\xa9\x14") and script.endswith(b"\x87"):
        return str(base58.encode_check(bytes([network.p2sh[0]]) + script[2:22]))
    if network.hrp and 4 <= len(script) <= 42 and script[1] == len(script) - 2:
        version = script[0] - 0x50 if script[0] else 0
        if 0 <= version <= 16:
            return str(bech32.encode(network.hrp, version, script[2:]))
    return None
