"""The relay's desk: what it checks, what it remembers, what it signs."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.clarity import malformed
from sandboxer.payments.stacks.transactions import (
    StacksKey,
    Transaction,
    digest_to_sign,
    parse_hex,
    sign_digest,
    verify_condition,
    verify_origin,
    write_transaction,
)
from sandboxer.payments.stacks.transfers import STX, read_transfer
from testchains.stacks.simnet import ASSETS, NETWORK, Simnet

FEE = 400
SPONSOR_FLAG = b"\x05"
REMEMBERED_S = 300
HELD_S = 900
Answer = tuple[int, dict[str, Any]]
# The node's refusals in the relay's words.
_REFUSALS = {
    "BadNonce": "client_bad_nonce",
    "ConflictingNonceInMempool": "conflicting_nonce",
    "NotEnoughFunds": "client_insufficient_funds",
    "SignatureValidation": "signature_validation_failed",
}


class Faults:
    """What shall go wrong, each so many times."""

    def __init__(self) -> None:
        self._armed: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def arm(self, fault: str, value: float = 1, times: int = 1) -> None:
        """`drop_answer`; `slow_answer` (seconds); `turn_away` (status); `forget` (identifier cache)."""
        with self._lock:
            self._armed.setdefault(fault, []).extend([value] * times)

    def take(self, fault: str) -> float:
        with self._lock:
            armed = self._armed.get(fault)
            return armed.pop() if armed else 0


@dataclass
class Held:
    """A payment that waits for the nonces before its own."""

    transaction: Transaction
    payment_id: str
    until: float


@dataclass
class Desk:
    simnet: Simnet
    key: StacksKey
    faults: Faults = field(default_factory=Faults)
    # Payment id -> transaction id, or the reason why there is none.
    book: dict[str, str] = field(default_factory=dict)
    broadcasts: list[str] = field(default_factory=list)
    _answers: dict[str, tuple[str, float, Answer]] = field(default_factory=dict)
    _held: dict[tuple[str, int], Held] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return self.key.address(mainnet=False)

    def supported(self) -> dict[str, Any]:
        kind = {"x402Version": 2, "scheme": "exact", "network": NETWORK}
        return {
            "kinds": [kind],
            "extensions": ["payment-identifier"],
            "signers": {"stacks:*": [self.address]},
        }

    def verify(self, body: dict[str, Any]) -> Answer:
        try:
            transaction = self._check(body)
        except _No as no:
            return 200, {"isValid": False, "invalidReason": no.reason, "invalidMessage": str(no)}
        return 200, {"isValid": True, "payer": transaction.origin_address}

    def settle(self, body: dict[str, Any]) -> Answer:
        with self._lock:
            digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
            keys = [f"tx:{_hex_of(body)}"]
            identifier = _identifier(body)
            if identifier is not None:
                keys.insert(0, f"id:{identifier}")
            if self.faults.take("forget"):
                self._answers.clear()
            for key in keys:
                known = self._answers.get(key)
                if known is None or known[1] < time.monotonic():
                    continue
                if key.startswith("id:") and known[0] != digest:
                    return 409, {"success": False, "errorReason": "payment_identifier_conflict"}
                return known[2]
            answer = self._settle(body)
            if answer[1].get("success"):
                for key in keys:
                    self._answers[key] = (digest, time.monotonic() + REMEMBERED_S, answer)
            return answer

    def payment(self, payment_id: str) -> Answer:
        if payment_id not in self.book:
            return 404, {
                "paymentId": payment_id,
                "status": "not_found",
                "terminalReason": "unknown_payment_identity",
            }
        found = self.book[payment_id]
        if len(found) != 64:
            state = "queued" if found == "held" else "failed"
            return 200, {"paymentId": payment_id, "status": state, "terminalReason": found}
        status, body = self.transaction(found)
        return status, {**body, "paymentId": payment_id}

    def transaction(self, txid: str) -> Answer:
        reported = self.simnet.read_or_none(f"/extended/v1/tx/{txid}")
        if reported is None:
            return 404, {"status": "not_found", "terminalReason": "expired"}
        body: dict[str, Any] = {"txid": txid}
        match reported["tx_status"]:
            case "success":
                return 200, {**body, "status": "confirmed", "blockHeight": reported["block_height"]}
            case "dropped_replace_by_fee":
                return 200, {**body, "status": "replaced", "terminalReason": "nonce_replacement"}
            case status if status.startswith("abort_"):
                return 200, {**body, "status": "failed", "terminalReason": "chain_abort"}
        return 200, {**body, "status": "mempool"}

    def _settle(self, body: dict[str, Any]) -> Answer:
        try:
            transaction = self._check(body)
            payer, nonce = transaction.origin_address, transaction.origin.nonce
            expected = self._next_nonce(payer)
            payment_id = "pay_" + secrets.token_urlsafe(12)
            if nonce > expected:
                return self._hold(transaction, payment_id, expected)
            txid = self._broadcast(transaction)
        except _No as no:
            return 200, {
                "success": False,
                "errorReason": no.reason,
                "errorMessage": str(no),
                "transaction": "",
                "network": NETWORK,
            }
        self.book[payment_id] = txid
        self._release(payer)
        return 200, {
            "success": True,
            "payer": payer,
            "transaction": txid,
            "network": NETWORK,
            "paymentId": payment_id,
        }

    def _check(self, body: dict[str, Any]) -> Transaction:
        asked = body.get("paymentRequirements") or {}
        if asked.get("network") != NETWORK:
            raise _No("invalid_network", str(asked.get("network")))
        known = {text.partition("::")[0] for text in ASSETS.values()}
        if asked.get("asset") not in known:
            raise _No("unrecognized_asset", str(asked.get("asset")))
        try:
            transaction = parse_hex(_hex_of(body))
            verify_origin(transaction)
            transfer = read_transfer(transaction)
        except InvalidRequest as refusal:
            signature = refusal.facts.get("reason") == "signature_validation_failed"
            raise _No(
                "signature_validation_failed" if signature else "invalid_payload", str(refusal)
            ) from None
        if transaction.sponsor is None:
            raise _No("invalid_transaction_state", "not sponsored")
        if (transfer.contract or STX) != asked["asset"]:
            raise _No("unrecognized_asset", f"pays {transfer.contract}")
        if transfer.recipient != asked.get("payTo"):
            raise _No("recipient_mismatch", transfer.recipient)
        if transfer.amount < int(asked.get("amount", "0")):
            raise _No("amount_insufficient", str(transfer.amount))
        return transaction

    def _hold(self, transaction: Transaction, payment_id: str, expected: int) -> Answer:
        payer, nonce = transaction.origin_address, transaction.origin.nonce
        self._held[payer, nonce] = Held(transaction, payment_id, time.monotonic() + HELD_S)
        self.book[payment_id] = "held"
        queue = {
            "senderNonce": nonce,
            "nextExpectedNonce": expected,
            "missingNonces": list(range(expected, nonce)),
            "handSize": sum(1 for who, _ in self._held if who == payer),
        }
        return 200, {
            "success": False,
            "errorReason": "transaction_held",
            "transaction": "",
            "network": NETWORK,
            "payer": payer,
            "queue": queue,
        }

    def _release(self, payer: str) -> None:
        """What waited for the nonce that just came goes out after it."""
        while (key := (payer, self._next_nonce(payer))) in self._held:
            held = self._held.pop(key)
            if held.until < time.monotonic():
                self.book[held.payment_id] = "sender_hand_expired"
                continue
            try:
                self.book[held.payment_id] = self._broadcast(held.transaction)
            except _No as no:
                self.book[held.payment_id] = no.reason
                return

    def _broadcast(self, transaction: Transaction) -> str:
        nonce = self._next_nonce(self.address)
        sponsored = sign_sponsor(transaction, self.key, nonce=nonce, fee=FEE)
        answer = self.simnet.broadcast(write_transaction(sponsored))
        if answer.status_code != 200:
            body = answer.json()
            reason = _REFUSALS.get(body.get("reason"), "broadcast_failed")
            raise _No(reason, f"{body.get('reason')}: {body.get('reason_data')}")
        self.broadcasts.append(sponsored.txid)
        return sponsored.txid

    def _next_nonce(self, address: str) -> int:
        return int(self.simnet.read(f"/extended/v1/address/{address}/nonces")["possible_next_nonce"])


class _No(Exception):
    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def _hex_of(body: dict[str, Any]) -> str:
    payload = (body.get("paymentPayload") or {}).get("payload") or {}
    return str(payload.get("transaction"))


def _identifier(body: dict[str, Any]) -> str | None:
    extensions = (body.get("paymentPayload") or {}).get("extensions") or {}
    info = (extensions.get("payment-identifier") or {}).get("info") or {}
    return info.get("id")


def sign_sponsor(transaction: Transaction, key: StacksKey, *, nonce: int, fee: int) -> Transaction:
    """The origin's signature is checked first: nobody sponsors what nobody signed."""
    if transaction.sponsor is None:
        raise malformed("it was not made to be sponsored", "not_sponsored")
    sponsor = key.condition(nonce=nonce, fee=fee)
    digest = digest_to_sign(verify_origin(transaction), SPONSOR_FLAG, sponsor)
    return replace(transaction, sponsor=replace(sponsor, signature=sign_digest(key, digest)))


def verify_sponsor(transaction: Transaction) -> None:
    if transaction.sponsor is None:
        raise malformed("it was not made to be sponsored", "not_sponsored")
    verify_condition(verify_origin(transaction), SPONSOR_FLAG, transaction.sponsor, "sponsor")
