"""Names a wallet by CAIP-10, whatever its chain, and checks what it signed.

One key is one wallet: EVM addresses are the same on every EVM chain, so all are filed under `eip155:1`. A
contract's address is not: who deploys it on another chain may be somebody else, so it is filed by its chain.

EVM wallets sign by EIP-191 `personal_sign`, which is verified here over coincurve and keccak: the usual
library takes a second and 25 MB to import for these few lines (its signatures are test vectors here).
Contract wallets (EIP-1271) would need a chain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from sandboxer.identity.signatures.bitcoin import (
    bad_address,
    bad_signature,
    bitcoin_address,
    malformed_signature,
    recover,
    verify_bitcoin,
)
from sandboxer.identity.signatures.stacks import stacks_address, verify_stacks_message
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class

if TYPE_CHECKING:
    from Cryptodome.Hash import keccak
else:
    keccak = late("Cryptodome.Hash.keccak")

Namespace = Literal["eip155", "stacks", "bip122"]
# CAIP-2 references: the genesis block's first 32 hex digits for Bitcoin, chain ids for Stacks.
BITCOIN_REFERENCES = {
    "mainnet": "000000000019d6689c085ae165831e93",
    "testnet": "000000000933ea01ad0ee984209779ba",
    "regtest": "0f9188f13cb7b2c71f2a335e3a4fc328",
}
STACKS_REFERENCES = {"mainnet": "1", "testnet": "2147483648"}
EVM_REFERENCE = "1"
_LONGEST = 160
_EIP191 = "EIP-191"
_EVM_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_EVM_SIGNATURE = re.compile(r"0x[0-9a-fA-F]{130}|[0-9a-fA-F]{130}")


@value_class
class Wallet:
    namespace: Namespace
    reference: str
    # Canonical: the same wallet never has two spellings.
    address: str

    @property
    def caip10(self) -> str:
        return f"{self.namespace}:{self.reference}:{self.address}"

    @property
    def is_mainnet(self) -> bool:
        mainnets = {
            "eip155": EVM_REFERENCE,
            "stacks": STACKS_REFERENCES["mainnet"],
            "bip122": BITCOIN_REFERENCES["mainnet"],
        }
        return self.reference == mainnets[self.namespace]


def wallet_of(text: str) -> Wallet:
    """Parses a CAIP-10 name or a bare address of any chain we know. Raises InvalidRequest."""
    if len(text) > _LONGEST:
        raise bad_address("wallet", "too long")
    named, _, address = text.rpartition(":")
    wallet = _from_address(address)
    if named:
        namespace, _, reference = named.partition(":")
        is_same_chain = wallet.namespace == "eip155" or reference == wallet.reference
        if namespace != wallet.namespace or not is_same_chain or not reference.isalnum():
            raise bad_address("wallet", f"it is not an address of {named}")
    return wallet


def contract_wallet(network: str, address: str) -> Wallet:
    """Returns the wallet that is a contract of this EVM chain (`eip155:8453`), and of no other."""
    wallet = _from_address(address)
    namespace, _, reference = network.partition(":")
    if wallet.namespace != "eip155" or namespace != "eip155" or not reference.isdigit():
        raise bad_address("wallet", f"it is not a contract of {network}")
    return Wallet(namespace="eip155", reference=reference, address=wallet.address)


def verify_message(wallet: Wallet, message: str, signature: str) -> None:
    """Raises Unauthenticated unless `wallet` signed this text."""
    match wallet.namespace:
        case "eip155":
            verify_evm(wallet.address, message, signature)
        case "bip122":
            verify_bitcoin(wallet.address, message, signature)
        case "stacks":
            verify_stacks_message(wallet.address, message, signature)


def _from_address(address: str) -> Wallet:
    if address[:2].lower() == "0x":
        return Wallet(namespace="eip155", reference=EVM_REFERENCE, address=evm_address(address))
    if address[:1] == "S":
        stacks = stacks_address(address)
        return Wallet(namespace="stacks", reference=STACKS_REFERENCES[stacks.network], address=stacks.text)
    bitcoin = bitcoin_address(address)
    return Wallet(namespace="bip122", reference=BITCOIN_REFERENCES[bitcoin.network], address=bitcoin.text)


def evm_address(text: str) -> str:
    """Returns an address in lower case. Mixed case is a checksum (EIP-55) and has to be right."""
    if _EVM_ADDRESS.fullmatch(text) is None:
        raise bad_address("EVM", "it is not 0x and 40 hex digits")
    digits = text[2:]
    if digits not in (digits.lower(), digits.upper()) and _checksummed(digits.lower()) != digits:
        raise bad_address("EVM", "the capital letters are not its checksum")
    return text.lower()


def recover_evm(message: str, signature: str) -> str:
    """Returns the address (lower case) that signed `message`. It proves something only beside an expected
    one, or as the answer to a challenge.
    """
    if _EVM_SIGNATURE.fullmatch(signature) is None:
        raise malformed_signature(_EIP191, "65 bytes r, s, v in hex")
    raw = bytes.fromhex(signature.removeprefix("0x"))
    if (recovery_id := {0: 0, 1: 1, 27: 0, 28: 1}.get(raw[64])) is None:
        raise malformed_signature(_EIP191, "65 bytes r, s, v in hex, with v one of 0, 1, 27, 28")
    if (key := recover(eip191_digest(message), raw[:64], recovery_id)) is None:
        raise bad_signature(_EIP191)
    return "0x" + _keccak(key.format(compressed=False)[1:])[12:].hex()


def verify_evm(address: str, message: str, signature: str) -> None:
    if recover_evm(message, signature) != evm_address(address):
        raise bad_signature(_EIP191)


def eip191_digest(message: str) -> bytes:
    raw = message.encode()
    return _keccak(b"\x19Ethereum Signed Message:\n" + str(len(raw)).encode() + raw)


def checksummed(address: str) -> str:
    """Writes an address as EIP-55 does, which sign-in messages require."""
    return "0x" + _checksummed(evm_address(address)[2:])


def _checksummed(digits: str) -> str:
    nibbles = _keccak(digits.encode()).hex()
    return "".join(
        letter.upper() if int(nibble, 16) >= 8 else letter
        for letter, nibble in zip(digits, nibbles, strict=False)
    )


def _keccak(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()
