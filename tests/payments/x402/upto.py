"""Paying by `upto`: a client that signs for Permit2, and what settles it by hand."""

from __future__ import annotations

from typing import Any

from eth_account import Account
from web3 import Web3
from x402 import x402Client
from x402.mechanisms.evm.constants import X402_UPTO_PERMIT2_PROXY_ABI, X402_UPTO_PERMIT2_PROXY_ADDRESS
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.mechanisms.evm.upto.client import UptoEvmScheme
from x402.schemas import PaymentPayload, PaymentRequired, PaymentRequirements

from testchains.evm import Anvil
from testchains.evm.permit2 import approve_permit2, send

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


def carry(chain: Anvil, sender: str, payload: PaymentPayload, *, more: int = 0, **witness: str) -> None:
    """Straight to the proxy, past every check but the chain's. Raises ContractLogicError."""
    given = payload.payload["permit2Authorization"]
    permitted, bound = given["permitted"], given["witness"] | witness
    amount = int(permitted["amount"])
    proxy = chain.web3.eth.contract(
        address=Web3.to_checksum_address(X402_UPTO_PERMIT2_PROXY_ADDRESS), abi=X402_UPTO_PERMIT2_PROXY_ABI
    )
    call = proxy.functions.settle(
        ((permitted["token"], amount), int(given["nonce"]), int(given["deadline"])),
        amount + more,
        given["from"],
        (bound["to"], bound["facilitator"], int(bound["validAfter"])),
        bytes.fromhex(payload.payload["signature"].removeprefix("0x")),
    )
    send(chain, sender, call)
