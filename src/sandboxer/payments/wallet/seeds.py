"""One seed, every key an agent pays with: BIP 39 words, then each chain's customary path."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from coincurve import PublicKey
from Cryptodome.Hash import keccak
from embit import bip39
from embit.bip32 import HDKey
from embit.hashes import hash160

from sandboxer.identity.signatures import stacks
from sandboxer.identity.signatures.evm import checksummed
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.addresses import MAINNET, Network, address_of, network_of
from sandboxer.payments.chains.derivation import Script, output_script

_EVM = "m/44h/60h/0h/0/0"
_STACKS = "m/44h/5757h/0h/0/0"
_COIN_TYPE = {"BTC": 0, "LTC": 2, "DOGE": 3}
_STACKS_VERSIONS = {True: 22, False: 26}


@dataclass(frozen=True)
class Seed:
    words: str

    def __post_init__(self) -> None:
        if not bip39.mnemonic_is_valid(self.words):
            raise InvalidRequest(field="words", why="these are not the words of a seed")

    def __repr__(self) -> str:
        return "Seed(…)"

    @property
    def root(self) -> HDKey:
        return HDKey.from_seed(bip39.mnemonic_to_seed(self.words))

    def evm_key(self) -> bytes:
        return self._key(_EVM)

    def evm_address(self) -> str:
        point = PublicKey(self.root.derive(_EVM).get_public_key().sec()).format(compressed=False)
        return checksummed("0x" + keccak.new(digest_bits=256, data=point[1:]).digest()[12:].hex())

    def stacks_key(self) -> bytes:
        return self._key(_STACKS)

    def stacks_address(self, *, mainnet: bool = True) -> str:
        public = self.root.derive(_STACKS).get_public_key().sec()
        return stacks.encode(_STACKS_VERSIONS[mainnet], bytes(hash160(public)))

    def account(self, coin: str, network: str = MAINNET) -> SpendingKey:
        """The account of a Bitcoin-family coin, with the keys that spend."""
        place = network_of(coin, network)
        kind = Script.P2PKH if place.hrp is None else Script.P2WPKH
        purpose = 44 if kind is Script.P2PKH else 84
        coin_type = _COIN_TYPE[coin] if network == MAINNET else 1
        return SpendingKey(self.root.derive(f"m/{purpose}h/{coin_type}h/0h"), place, kind)

    def _key(self, path: str) -> bytes:
        return bytes(self.root.derive(path).key.serialize())


def new_seed() -> Seed:
    return Seed(bip39.mnemonic_from_bytes(secrets.token_bytes(16)))


@dataclass(frozen=True)
class SpendingKey:
    """An account's private key. Branch 0 receives, branch 1 takes change."""

    key: HDKey
    network: Network
    kind: Script

    def __repr__(self) -> str:
        return f"SpendingKey({self.network.coin} {self.network.name})"

    def child(self, branch: int, index: int) -> HDKey:
        return self.key.derive([branch, index])

    def script(self, branch: int, index: int) -> bytes:
        return output_script(self.child(branch, index).get_public_key().sec(), self.kind)

    def address(self, index: int, *, branch: int = 0) -> str:
        address = address_of(self.script(branch, index), self.network)
        assert address is not None, "every kind of script here has an address"
        return address

    def xpub(self) -> str:
        """What a server may know: it makes the same addresses and spends none."""
        return str(self.key.to_public().to_base58())
