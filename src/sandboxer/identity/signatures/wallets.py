"""Names a wallet by CAIP-10, whatever its chain, and checks what it signed.

One key is one wallet: EVM addresses are the same on every EVM chain, so all are filed under `eip155:1`. A
contract's address is not: who deploys it on another chain may be somebody else, so it is filed by its chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sandboxer.identity.signatures.bitcoin import bitcoin_address, verify_bitcoin
from sandboxer.identity.signatures.evm import evm_address, verify_evm
from sandboxer.identity.signatures.recovery import bad_address
from sandboxer.identity.signatures.stacks import stacks_address, verify_stacks_message

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
