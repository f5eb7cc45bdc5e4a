"""What became of a payment, asked of a node: is its nonce spent, by which transaction, how deep?

Only events of the token count, read from the receipt: a nonce can also be cancelled by its owner, and an
authorization may be carried to the chain by anyone. Permit2 tells of no nonce that it spent, so a transfer
that was found (not named by the settler) counts only if the transaction's own call to the proxy names payer
and nonce: any other transfer of the payer may have paid for something else.

All that one look says is said of one block, the node's head when the look began: a node that is behind then
says little, and never something wrong. A block counts if it is the node's own at its height; a receipt of
another proves nothing.

A nonce that is spent, and no event that says by what, is a node that lags behind (or one of several at one
address): it is asked again for a day before the payment is given up, for that cannot be undone.

Which permit a transaction settled: read from its call to x402's proxy, as Permit2 tells nothing of it.

A node's JSON-RPC, asked with a deadline; what it says in error is `ChainUnavailable`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.crypto import keccak
from x402.mechanisms.evm.constants import X402_UPTO_PERMIT2_PROXY_ADDRESS

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.lifecycle import CREDITED
from sandboxer.payments.records import Payment
from sandboxer.payments.x402.evm_schemes import PERMIT2
from sandboxer.payments.x402.ways import Fate, Sighting

log = logging.getLogger(__name__)
PERMIT2_CONTRACT = "0x000000000022d473030f116ddee9f6b43ac78ba3"
_USED = "0x" + keccak(text="AuthorizationUsed(address,bytes32)").hex()
_CANCELED = "0x" + keccak(text="AuthorizationCanceled(address,bytes32)").hex()
_INVALIDATED = "0x" + keccak(text="UnorderedNonceInvalidation(address,uint256,uint256)").hex()
_TRANSFER = "0x" + keccak(text="Transfer(address,address,uint256)").hex()
_AUTHORIZATION_STATE = function_signature_to_4byte_selector("authorizationState(address,bytes32)")
_NONCE_BITMAP = function_signature_to_4byte_selector("nonceBitmap(address,uint256)")
# How many blocks are searched in one question; public nodes refuse more.
LOG_SPAN = 2000
# Before the record was written: others may carry a payment to the chain sooner, and clocks differ.
_MARGIN_S = 600
# For how long it is looked for what spent a nonce, and how often at least: we may have been away that long.
UNFOUND_FOR = timedelta(days=1)
UNFOUND_LOOKS = 60
_PERMIT = "((address,uint256),uint256,uint256)"
_REST = (_PERMIT, "uint256", "address", "(address,address,uint256)", "bytes")
_EIP2612 = "(uint256,uint256,bytes32,bytes32,uint8)"
_SELECTOR_BYTES = 4
# The arguments of each call that settles; the permit is the fifth from the end, its owner the third.
_CALLS = {
    function_signature_to_4byte_selector(f"{name}({','.join(types)})"): types
    for name, types in (("settle", _REST), ("settleWithPermit", (_EIP2612, *_REST)))
}
TIMEOUT_S = 10.0


class EvmWatcher:
    def __init__(
        self, node: Node, clock: Clock, *, pay_to: str, carrier: str | None = None, is_shared: bool = False
    ) -> None:
        """`carrier`: who sends our settlements. `is_shared`: others are paid at `pay_to` too, so that only
        what this carrier brought was meant for us."""
        self._node = node
        self._clock = clock
        self._pay_to = pay_to.lower()
        self._carrier = None if carrier is None else carrier.lower()
        self._is_shared = is_shared

    async def look(self, payment: Payment) -> Sighting:
        head = int(await self._node.call("eth_blockNumber", []), 16)
        if payment.txid is not None:
            receipt = await self._node.call("eth_getTransactionReceipt", [payment.txid])
            if receipt is not None and (seen := await self._judge(payment, receipt, head)) is not None:
                return seen
        is_there = None
        if payment.state in CREDITED:
            is_there = await self._is_block_there(payment)
            if is_there is not False and payment.height is not None:
                # It is behind, or does not show the receipts of its own blocks.
                return Sighting(fate=Fate.UNKNOWN, head=head, is_block_there=is_there)
        seen = await self._missing(payment, head)
        if seen.fate is not Fate.CONFIRMED and payment.state in CREDITED:
            await self._check_chain(payment)
        return replace(seen, head=head, is_block_there=is_there)

    async def _missing(self, payment: Payment, head: int) -> Sighting:
        """What became of one that is not where it was last seen."""
        if not await self._is_spent(payment, head):
            return await self._unspent(payment, head)
        for txid in await self._search(payment):
            if (receipt := await self._node.call("eth_getTransactionReceipt", [txid])) is None:
                continue
            if (seen := await self._judge(payment, receipt, head)) is not None:
                return seen
            if receipt.get("status") == "0x1" and await self._is_canonical(receipt):
                return Sighting(fate=Fate.FAILED, reason="nonce_spent", is_spent_otherwise=True)
        return await self._unfound(payment)

    async def _is_block_there(self, payment: Payment) -> bool | None:
        """Whether the block it was confirmed in is the node's own at that height; None: it has none there, or
        nobody remembers the height."""
        if payment.block is None or payment.height is None:
            return None
        block = await self._node.call("eth_getBlockByNumber", [hex(payment.height), False])
        return None if block is None else str(block["hash"]).lower() == payment.block

    async def _is_canonical(self, receipt: Mapping[str, Any]) -> bool:
        block = await self._node.call("eth_getBlockByNumber", [receipt["blockNumber"], False])
        return block is not None and str(block["hash"]).lower() == str(receipt["blockHash"]).lower()

    async def _check_chain(self, payment: Payment) -> None:
        """Before a payment is denied: is this still the chain it was made on?"""
        chain = int(await self._node.call("eth_chainId", []), 16)
        if f"eip155:{chain}" != payment.network:
            raise ChainUnavailable(chain=payment.network, why=f"the node is of eip155:{chain}")

    async def _unfound(self, payment: Payment) -> Sighting:
        """Spent, and not by what: given up if its owner cancelled it, or after a day of asking."""
        age = self._clock.now() - payment.created_at
        is_given_up = age >= UNFOUND_FOR and payment.looks >= UNFOUND_LOOKS
        if payment.state not in CREDITED and is_given_up:
            return Sighting(fate=Fate.FAILED, reason="nonce_spent", is_spent_otherwise=True)
        if await self._is_invalidated(payment):
            return Sighting(fate=Fate.FAILED, reason="nonce_spent", is_spent_otherwise=True)
        raise ChainUnavailable(
            chain=payment.network, why="a nonce is spent, but the node does not show by what yet"
        )

    async def _is_invalidated(self, payment: Payment) -> bool:
        """Whether the owner cancelled it at Permit2; a token's own cancellation is found as its use is."""
        if not payment.nonce.startswith(PERMIT2):
            return False
        nonce = int(payment.nonce.removeprefix(PERMIT2))
        async for logs in self._logs(payment, PERMIT2_CONTRACT, [_INVALIDATED, _topic(payment.payer)]):
            for found in logs:
                data = bytes.fromhex(str(found["data"]).removeprefix("0x"))
                word, mask = int.from_bytes(data[:32]), int.from_bytes(data[32:64])
                if word == nonce >> 8 and mask >> (nonce & 255) & 1:
                    return True
        return False

    async def _judge(self, payment: Payment, receipt: Mapping[str, Any], head: int) -> Sighting | None:
        """Confirmed if this transaction brought the money; None if it did not."""
        if receipt.get("status") != "0x1" or not self._brought(payment, receipt):
            return None
        if not await self._is_canonical(receipt):
            return None
        if self._is_anothers(payment, receipt):
            return Sighting(fate=Fate.FAILED, reason="carried_by_other", head=head, is_spent_otherwise=True)
        height = int(receipt["blockNumber"], 16)
        # A block may have come since the look began.
        head = max(head, height)
        return Sighting(
            fate=Fate.CONFIRMED,
            txid=str(receipt["transactionHash"]).lower(),
            block=str(receipt["blockHash"]).lower(),
            height=height,
            confirmations=head - height + 1,
            head=head,
        )

    def _is_anothers(self, payment: Payment, receipt: Mapping[str, Any]) -> bool:
        """Whether another installation's carrier brought it to the address that both are paid at."""
        if self._carrier is None or str(receipt.get("from")).lower() == self._carrier:
            return False
        if not self._is_shared and payment.looks == 0:
            log.warning(
                "payment %s was carried to %s by %s, not by us; if another installation is paid at the same"
                " pay_to, it may have counted there too: set options.shared_pay_to, or give each its own",
                payment.id,
                payment.network,
                receipt.get("from"),
            )
        return self._is_shared

    def _brought(self, payment: Payment, receipt: Mapping[str, Any]) -> bool:
        """Whether the transfer that belongs to this nonce paid us. One transaction can spend many nonces and
        pay us for one of them only."""
        wanted = [_TRANSFER, _topic(payment.payer), _topic(self._pay_to)]
        logs = [log for log in receipt.get("logs") or () if _is_of(log, payment.asset)]
        paid = [_topics(log) == wanted and int(log["data"], 16) == payment.amount for log in logs]
        if payment.nonce.startswith(PERMIT2):
            return any(paid)
        used = [_USED, _topic(payment.payer), payment.nonce]
        at = next((place for place, log in enumerate(logs) if _topics(log) == used), None)
        if at is None:
            return False
        if at + 1 < len(logs) and _topics(logs[at + 1])[:1] == [_TRANSFER]:
            return paid[at + 1]
        # Tokens that tell of the nonce last.
        return at > 0 and paid[at - 1]

    async def _is_spent(self, payment: Payment, head: int) -> bool:
        if payment.nonce.startswith(PERMIT2):
            nonce = int(payment.nonce.removeprefix(PERMIT2))
            data = _NONCE_BITMAP + encode(["address", "uint256"], [payment.payer, nonce >> 8])
            return bool(await self._read(PERMIT2_CONTRACT, data, head) >> (nonce & 255) & 1)
        nonce_bytes = bytes.fromhex(payment.nonce.removeprefix("0x"))
        data = _AUTHORIZATION_STATE + encode(["address", "bytes32"], [payment.payer, nonce_bytes])
        return await self._read(payment.asset, data, head) != 0

    async def _unspent(self, payment: Payment, head: int) -> Sighting:
        """It may still come, until its time is over by the chain's own clock."""
        if payment.txid is not None:
            pending = await self._node.call("eth_getTransactionByHash", [payment.txid])
            if pending is not None and pending.get("blockHash") is None:
                return Sighting(fate=Fate.SEEN, txid=payment.txid)
        if (block := await self._node.call("eth_getBlockByNumber", [hex(head), False])) is None:
            raise ChainUnavailable(chain=payment.network, why="the node does not show its own head")
        if payment.valid_until is not None and int(block["timestamp"], 16) >= payment.valid_until.timestamp():
            return Sighting(fate=Fate.FAILED, reason="expired")
        return Sighting(fate=Fate.UNSEEN)

    async def _read(self, contract: str, data: bytes, head: int) -> int:
        answer = await self._node.call("eth_call", [{"to": contract, "data": "0x" + data.hex()}, hex(head)])
        return int(answer, 16) if answer not in (None, "0x") else 0

    async def _search(self, payment: Payment) -> list[str]:
        """The transactions that spent or cancelled the nonce: one, or none."""
        topics: list[Any]
        if payment.nonce.startswith(PERMIT2):
            topics = [_TRANSFER, _topic(payment.payer), _topic(self._pay_to)]
        else:
            topics = [[_USED, _CANCELED], _topic(payment.payer), payment.nonce]
        async for logs in self._logs(payment, payment.asset, topics):
            if found := await self._of_nonce(payment, [str(log["transactionHash"]) for log in logs]):
                return found
        return []

    async def _logs(
        self, payment: Payment, contract: str, topics: list[Any]
    ) -> AsyncIterator[list[Mapping[str, Any]]]:
        """A contract's events since the payment was presented, backwards from the newest block."""
        since = int(payment.created_at.timestamp()) - _MARGIN_S
        last = int(await self._node.call("eth_blockNumber", []), 16)
        while last >= 0:
            first = max(0, last - LOG_SPAN + 1)
            wanted = {
                "address": contract,
                "topics": topics,
                "fromBlock": hex(first),
                "toBlock": hex(last),
            }
            yield await self._node.call("eth_getLogs", [wanted]) or []
            block = await self._node.call("eth_getBlockByNumber", [hex(first), False])
            if first == 0 or int(block["timestamp"], 16) < since:
                return
            last = first - 1

    async def _of_nonce(self, payment: Payment, txids: list[str]) -> list[str]:
        if not payment.nonce.startswith(PERMIT2):
            return txids[-1:]
        nonce = int(payment.nonce.removeprefix(PERMIT2))
        for txid in reversed(dict.fromkeys(txids)):
            sent = await self._node.call("eth_getTransactionByHash", [txid])
            if sent is not None and settled_permit(sent) == (payment.payer.lower(), nonce):
                return [txid]
        return []


def _topic(address: str) -> str:
    return "0x" + address.lower().removeprefix("0x").rjust(64, "0")


def _topics(log: Mapping[str, Any]) -> list[str]:
    return [str(topic).lower() for topic in log["topics"]]


def _is_of(log: Mapping[str, Any], asset: str) -> bool:
    return str(log["address"]).lower() == asset.lower()


def settled_permit(transaction: Mapping[str, Any]) -> tuple[str, int] | None:
    """Payer and nonce; None for a transaction that is no call to the proxy."""
    if str(transaction.get("to") or "").lower() != X402_UPTO_PERMIT2_PROXY_ADDRESS.lower():
        return None
    try:
        data = bytes.fromhex(str(transaction["input"]).removeprefix("0x"))
        types = _CALLS[data[:_SELECTOR_BYTES]]
        # Whatever follows the arguments is somebody's mark, not ours to judge.
        given = decode(types, data[_SELECTOR_BYTES:], strict=False)
    except (KeyError, ValueError, DecodingError):
        return None
    permit, _, owner, _, _ = given[-len(_REST) :]
    return str(owner).lower(), int(permit[1])


class Node:
    def __init__(self, url: str, client: httpx.AsyncClient, *, network: str) -> None:
        self._url = url
        self._client = client
        self._network = network
        self._count = itertools.count(1)

    async def call(self, method: str, params: list[Any]) -> Any:
        """The result; None where the node knows nothing."""
        question = {"jsonrpc": "2.0", "id": next(self._count), "method": method, "params": params}
        try:
            answer = await self._client.post(self._url, json=question, timeout=TIMEOUT_S)
            answer.raise_for_status()
            document = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            why = f"the node does not answer {method}: {type(error).__name__}"
            raise ChainUnavailable(chain=self._network, why=why) from None
        if not isinstance(document, dict) or "result" not in document:
            raise ChainUnavailable(chain=self._network, why=f"the node refused {method}")
        return document["result"]
