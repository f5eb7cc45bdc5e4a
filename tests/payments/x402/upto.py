"""Paying by `upto`: a client that signs for Permit2, and what settles it by hand."""

from __future__ import annotations

from typing import Any

from eth_account import Account
from x402 import x402Client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.mechanisms.evm.upto.client import UptoEvmScheme
from x402.schemas import PaymentPayload, PaymentRequired, PaymentRequirements

from testchains.evm import Anvil
from testchains.evm.permit2 import approve_permit2

UPTO = {"schemes": ["upto"]}


def upto_client(key: str) -> x402Client:
    client = x402Client()
    client.register("eip155:*", UptoEvmScheme(EthAccountSigner(Account.from_key(key))))
    client.set_spend_controls(False)
    return client


async def pay_upto(key: str, required: PaymentRequired) -> PaymentPayload:
    payload = await upto_client(key).create_payment_payload(required)
    assert isinstance(payload, PaymentPayload)
    return payload


def signed_upto(key: str, requirements: PaymentRequirements) -> dict[str, Any]:
    """The inner payload that the official client signs for any requirement, ours or not."""
    return UptoEvmScheme(EthAccountSigner(Account.from_key(key))).create_payment_payload(requirements)


def ready_wallet(chain: Anvil, atomic: int = 5_000_000) -> str:
    """The key of a new wallet with test dollars that Permit2 may move."""
    key = chain.new_wallet(atomic)
    approve_permit2(chain, key)
    return key
