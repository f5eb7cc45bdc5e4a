"""Settling by ourselves: the package's facilitator with the operator's own key, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from x402 import x402FacilitatorSync
from x402.mechanisms.evm.exact.facilitator import ExactEvmScheme
from x402.mechanisms.evm.signers import FacilitatorWeb3Signer
from x402.mechanisms.evm.upto.facilitator import UptoEvmScheme
from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

# Threads that may wait for a chain at once.
AT_ONCE = 32


class Signer(FacilitatorWeb3Signer):
    """The package's signer, one transaction after the other: it reserves account nonces ahead, and one that
    is reserved and never sent would hold up all that follow."""

    def __init__(self, private_key: str, rpc_url: str, confirmation_timeout_seconds: float) -> None:
        super().__init__(private_key, rpc_url, confirmation_timeout_seconds)
        # Protects the choice of the account's nonce until the node has the transaction.
        self._sending = threading.Lock()

    def write_contract(
        self, address: str, abi: list[dict[str, Any]], function_name: str, *args: Any, **options: Any
    ) -> str:
        with self._sending:
            self._next_nonce = None
            return super().write_contract(address, abi, function_name, *args, **options)


class InProcess:
    """A facilitator of our own. Its methods block on the node, so they run in threads."""

    def __init__(self, signer: Signer, network: str) -> None:
        self._facilitator = x402FacilitatorSync()
        self._facilitator.register([network], ExactEvmScheme(signer))
        self._facilitator.register([network], UptoEvmScheme(signer))
        self.address: str = signer.address
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def verify(self, payload: PaymentPayload, requirements: PaymentRequirements) -> VerifyResponse:
        async with self._turns:
            return await asyncio.to_thread(self._facilitator.verify, payload, requirements)

    async def settle(self, payload: PaymentPayload, requirements: PaymentRequirements) -> SettleResponse:
        async with self._turns:
            return await asyncio.to_thread(self._facilitator.settle, payload, requirements)
