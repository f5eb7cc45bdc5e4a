"""A wallet that pays by itself, within caps: EIP-3009 authorizations on EVM networks, by the x402 package.

Caps are in the asset's own smallest units, never in what the other side says it is worth.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eth_account import Account
from eth_account.messages import encode_defunct
from x402 import x402ClientSync
from x402.http.utils import encode_payment_signature_header
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import PaymentPayload, PaymentRequired


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """So much of one asset on one network (CAIP-2), at most."""

    network: str
    asset: str
    per_payment: int
    in_total: int

    def covers(self, offer: Mapping[str, Any], spent: int) -> bool:
        """Says whether an offer is within this cap, after what was spent."""
        amount = str(offer.get("amount"))
        is_same = (offer.get("network"), str(offer.get("asset")).lower()) == (
            self.network,
            self.asset.lower(),
        )
        if not is_same or not amount.isascii() or not amount.isdigit():
            return False
        return int(amount) <= self.per_payment and int(amount) + spent <= self.in_total


class EvmPayer:
    """Pays what one of its caps covers, and nothing else. Give it to `Sandboxer(wallet=…)`."""

    def __init__(self, private_key: str, caps: Sequence[Cap]) -> None:
        account = Account.from_key(private_key)
        self.address: str = account.address
        self._account = account
        self._caps = tuple(caps)
        self._client = x402ClientSync()
        register_exact_evm_client(self._client, account)
        # Ours are stricter: named assets only, and a total.
        self._client.set_spend_controls(False)
        # Protects what was spent: a client may be shared by threads.
        self._lock = threading.Lock()
        self._spent: dict[Cap, int] = {}

    @property
    def spent(self) -> Mapping[Cap, int]:
        """What was signed for so far; not all of it need have been taken."""
        return dict(self._spent)

    def __call__(self, required: Mapping[str, Any]) -> str | None:
        with self._lock:
            for offer in required.get("accepts", ()):
                cap = next((c for c in self._caps if c.covers(offer, self._spent.get(c, 0))), None)
                if cap is None or offer.get("scheme") != "exact":
                    continue
                signed = self._sign({**required, "accepts": [offer]})
                self._spent[cap] = self._spent.get(cap, 0) + int(offer["amount"])
                return signed
        return None

    def sign_text(self, text: str) -> str:
        """Returns the wallet's signature of a text (EIP-191), by which it signs in."""
        signed = self._account.sign_message(encode_defunct(text=text))
        return "0x" + bytes(signed.signature).hex()

    def _sign(self, required: Mapping[str, Any]) -> str:
        payload = self._client.create_payment_payload(PaymentRequired.model_validate(required))
        assert isinstance(payload, PaymentPayload)
        return encode_payment_signature_header(payload)
