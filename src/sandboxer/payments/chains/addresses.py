"""Addresses of every coin that is accepted: they are read, checked, made, and written as payment URIs.

A coin sent to an address of another coin is lost, and several coins share prefixes on their test networks; so
a text is always read for one network, never guessed. Of Monero's base58 (blocks of eight bytes) only so much
is implemented as is needed to tell an address from a typing error. A payment URI is BIP 21 for the Bitcoin
family, and Monero's own form.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.kernel.values import brief_value_class
from sandboxer.payments.rates import ASSETS, as_text

if TYPE_CHECKING:
    from Cryptodome.Hash import keccak
    from embit import base58, bech32
else:
    base58, bech32 = late("embit.base58"), late("embit.bech32")
    keccak = late("Cryptodome.Hash.keccak")

MAINNET = "mainnet"
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
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT = {letter: value for value, letter in enumerate(_ALPHABET)}
# How many letters write how many bytes; other lengths do not occur.
_BYTES_OF_LETTERS = {0: 0, 2: 1, 3: 2, 5: 3, 6: 4, 7: 5, 9: 6, 10: 7, 11: 8}
_BLOCK = 11
_CHECKSUM = 4
_KEYS = 64
_PAYMENT_ID = 8
# First byte: standard, integrated (with a payment id), subaddress.
MONERO_PREFIXES: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "mainnet": (18, 19, 42),
        "testnet": (53, 54, 63),
        "stagenet": (24, 25, 36),
        # Monero calls it fakechain, and gives it mainnet's addresses.
        "regtest": (18, 19, 42),
    }
)
# scheme, name of the amount, name of the text
_FORMS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "BTC": ("bitcoin", "amount", "label"),
        "LTC": ("litecoin", "amount", "label"),
        "DOGE": ("dogecoin", "amount", "label"),
        "XMR": ("monero", "tx_amount", "tx_description"),
    }
)


@brief_value_class
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
    """Return the output script that pays this address. Raises InvalidRequest."""
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
    """Return the address of an output script; None for scripts that have none on this network."""
    if len(script) == 25 and script.startswith(b"\x76\xa9\x14") and script.endswith(b"\x88\xac"):
        return str(base58.encode_check(bytes([network.p2pkh]) + script[3:23]))
    if len(script) == 23 and script.startswith(b"\xa9\x14") and script.endswith(b"\x87"):
        return str(base58.encode_check(bytes([network.p2sh[0]]) + script[2:22]))
    if network.hrp and 4 <= len(script) <= 42 and script[1] == len(script) - 2:
        version = script[0] - 0x50 if script[0] else 0
        if 0 <= version <= 16:
            return str(bech32.encode(network.hrp, version, script[2:]))
    return None


def check_monero_address(text: str, network: str) -> None:
    raw = _decoded(text) if 90 <= len(text) <= 110 else None
    hashed = b"" if raw is None else keccak.new(digest_bits=256, data=raw[:-_CHECKSUM]).digest()
    if raw is None or hashed[:_CHECKSUM] != raw[-_CHECKSUM:]:
        raise InvalidRequest(field="address", why="not a Monero address (its checksum is wrong)")
    standard, integrated, sub = MONERO_PREFIXES[network]
    length = len(raw) - 1 - _CHECKSUM
    if (raw[0], length) not in {
        (standard, _KEYS),
        (sub, _KEYS),
        (integrated, _KEYS + _PAYMENT_ID),
    }:
        raise InvalidRequest(field="address", why=f"not an address of Monero's {network}")


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


def payment_uri(code: str, address: str, amount: int, label: str) -> str:
    scheme, amount_name, label_name = _FORMS[code]
    uri = f"{scheme}:{address}?{amount_name}={as_text(amount, ASSETS[code])}"
    return f"{uri}&{label_name}={quote(label, safe='')}" if label else uri
