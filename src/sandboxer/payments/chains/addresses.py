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
    # Hashes of the first blocks of the chains that use these addresses.
    genesis: tuple[str, ...]


# Of each coin's chainparams.cpp.
_BTC_MAIN = ("000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f",)
# Testnet 3 and 4, and signet, which share their addresses.
_BTC_TEST = (
    "000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943",
    "00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043",
    "00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6",
)
_BTC_REGTEST = ("0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206",)
_LTC_MAIN = ("12a765e31ffd4059bada1e25190f6e98c99d9714d334efa41a195a7e7e04bfe2",)
_LTC_TEST = ("4966625a4b2851d9fdee139e56211a0d88575f59ed816ff5e6a63deb4e3e29a0",)
_LTC_REGTEST = ("530827f38f93b43ed12af0b3ad25a288dc02ed74d6d7857862df51fc56c416f9",)
_DOGE_MAIN = ("1a91e3dace36e2be3bf030a65679fe821aa1d6ef92e7c9902eb318182c355691",)
_DOGE_TEST = ("bb0a78264637406b6360aad926284d544d7049f45189db5664f3c4d07350559e",)
_DOGE_REGTEST = ("3d2160a3b5dc4a9d62e7e66a295f70313ac808440ef7400d6c0772171ce973a5",)

NETWORKS: Mapping[tuple[str, str], Network] = MappingProxyType(
    {
        (network.coin, network.name): network
        for network in (
            Network("BTC", MAINNET, 0x00, (0x05,), "bc", _BTC_MAIN),
            Network("BTC", "testnet", 0x6F, (0xC4,), "tb", _BTC_TEST),
            Network("BTC", "regtest", 0x6F, (0xC4,), "bcrt", _BTC_REGTEST),
            # 0x05 is Bitcoin's byte: a refund "to Litecoin" must not be readable as both, so only 0x32.
            Network("LTC", MAINNET, 0x30, (0x32,), "ltc", _LTC_MAIN),
            Network("LTC", "testnet", 0x6F, (0x3A,), "tltc", _LTC_TEST),
            Network("LTC", "regtest", 0x6F, (0x3A,), "rltc", _LTC_REGTEST),
            Network("DOGE", MAINNET, 0x1E, (0x16,), None, _DOGE_MAIN),
            Network("DOGE", "testnet", 0x71, (0xC4,), None, _DOGE_TEST),
            Network("DOGE", "regtest", 0x6F, (0xC4,), None, _DOGE_REGTEST),
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
