"""Account keys of test wallets."""

from __future__ import annotations

from embit import base58, bip39
from embit.bip32 import HDKey

from sandboxer.payments.chains.addresses import Network
from sandboxer.payments.chains.bitcoin import AccountKey, read_account_key


def account_key(network: Network) -> AccountKey:
    return read_account_key(HDKey.from_seed(b"shop" * 8).to_public().to_base58(), network)


ROOT = HDKey.from_seed(bip39.mnemonic_to_seed(" ".join(["abandon"] * 11 + ["about"])))


BIP84_ZPUB = (
    "zpub6rFR7y4Q2AijBEqTUquhVz398htDFrtymD9xYYfG1m4wAcvPhXNf"
    "E3EfH1r1ADqtfSdVCToUG868RvUUkgDKf31mGDtKsAYz2oz2AGutZYs"
)


def xpub(path: str, version: str = "0488b21e") -> str:
    raw = base58.decode_check(ROOT.derive(path).to_public().to_base58())
    return str(base58.encode_check(bytes.fromhex(version) + raw[4:]))
