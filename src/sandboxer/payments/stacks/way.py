"""Stacks as a way to pay: who checks and settles a payment, how it is read, and how its fate is looked up.

A payment is looked for by payer and nonce, never by its first transaction id, which the sponsor's signature
changes. It has failed only when the chain shows its nonce spent by something else, or the transfer undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.kernel.errors import ChainUnavailable, InvalidRequest
from sandboxer.payments.lifecycle import CREDITED, State
from sandboxer.payments.records import Payment
from sandboxer.payments.stacks.facilitator import StacksFacilitator
from sandboxer.payments.stacks.nodes import Seen, StacksNode
from sandboxer.payments.stacks.relay import SETTLE_SECONDS, PaymentState, Relay, Status
from sandboxer.payments.stacks.shop import StacksShop, stacks_shop
from sandboxer.payments.stacks.transactions import Transaction, parse_hex, parse_transaction, verify_origin
from sandboxer.payments.stacks.transfers import NETWORKS, SCHEME, read_transfer
from sandboxer.payments.x402.ways import Accepted, Authorization, Fate, NetworkSettings, Sighting, Way

# The one end of which a relay alone can be believed: this very transaction was undone. A nonce it calls stale
# may be spent by this payment, and a transaction it calls replaced by another sponsoring of it.
_ABORTED = "chain_abort"
# Before its record was written: others may carry a payment to the chain sooner, and clocks differ.
EARLIEST = timedelta(minutes=10)


def stacks_way(
    settings: NetworkSettings, http: httpx.AsyncClient, *, settle_seconds: float = SETTLE_SECONDS
) -> Way:
    """Raises InvalidRequest for settings that cannot be."""
    shop = stacks_shop(settings)
    relay = Relay(shop.relay, http, settle_seconds=settle_seconds)
    node = None if shop.node is None else StacksNode(shop.node, http)
    second = None if shop.second_node is None else StacksNode(shop.second_node, http)
    return Way(
        network=shop.network.caip2,
        scheme=SCHEME,
        pay_to=shop.pay_to,
        accepts=tuple(Accepted(asset=t.asset, id=t.wire, extra=t.extra()) for t in shop.tokens),
        facilitator=StacksFacilitator(shop, relay, node),
        reader=StacksReader(shop),
        watcher=StacksWatcher(relay, node),
        check=None if node is None else lambda: _why_unusable(node, shop),
        witness=None if second is None else StacksWatcher(relay, second),
        confirmations=settings.confirmations,
        missing_blocks=settings.missing_blocks,
        settles_in_block=False,
        timeout_s=shop.timeout_s,
        extra={} if shop.memo is None else {"memo": shop.memo},
    )


async def _why_unusable(node: StacksNode, shop: StacksShop) -> str | None:
    """Whether the node is of the network that was configured, and shows its tip."""
    if (network := await node.network_id()) != shop.network.chain_id:
        return f"its node is of network {network}"
    if (height := await node.tip()) and await node.block_at(height) is None:
        return "its node does not show its own tip (is it an API of blocks and addresses?)"
    return None


class StacksReader:
    def __init__(self, shop: StacksShop) -> None:
        self._shop = shop

    def read(self, payload: PaymentPayload) -> Authorization:
        transaction = _transaction(payload.payload)
        return Authorization(
            payer=transaction.origin_address,
            nonce=str(transaction.origin.nonce),
            amount=read_transfer(transaction).amount,
            # A signed transaction does not age; only its nonce can be spent.
            valid_until=None,
        )

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        try:
            verify_origin(_transaction(payload.payload))
        except InvalidRequest:
            return False
        return True

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        return True


class StacksWatcher:
    def __init__(self, relay: Relay, node: StacksNode | None) -> None:
        self._relay = relay
        self._node = node

    async def look(self, payment: Payment) -> Sighting:
        if self._node is not None:
            return await self._look_at_chain(payment, self._node)
        return await self._ask_relay(payment)

    async def _look_at_chain(self, payment: Payment, node: StacksNode) -> Sighting:
        head = await node.tip()
        seen = await self._found(payment, node, head)
        if seen.fate is Fate.CONFIRMED or payment.state not in CREDITED:
            return replace(seen, head=max(head, seen.height or 0))
        # It was in a block, and is said not to be: is that block still the chain's?
        if payment.block is not None and payment.height is not None:
            if (block := await node.block_at(payment.height)) is None or block == payment.block:
                return Sighting(fate=Fate.UNKNOWN, head=head, is_block_there=block == payment.block)
            seen = replace(seen, is_block_there=False)
        if (network := await node.network_id()) != NETWORKS[payment.network].chain_id:
            raise ChainUnavailable(chain=payment.network, why=f"the node is of network {network}")
        return replace(seen, head=head)

    async def _found(self, payment: Payment, node: StacksNode, head: int) -> Sighting:
        nonce = int(payment.nonce)
        if await node.nonce(payment.payer) <= nonce:
            waiting = await node.waiting(payment.payer, nonce)
            if waiting is None or not await self._is_it(waiting, payment, node):
                return Sighting(fate=Fate.UNSEEN, reason="nonce_unspent")
            return Sighting(fate=Fate.SEEN, txid=waiting.txid, reason="mempool")
        if (mined := await node.mined(payment.payer, nonce)) is None:
            raise ChainUnavailable(
                chain="stacks", why="a nonce is spent, but by what is not in the index yet"
            )
        if not await self._is_it(mined, payment, node):
            return Sighting(
                fate=Fate.REPLACED, txid=mined.txid, reason="nonce_replacement", is_spent_otherwise=True
            )
        if _is_too_old(mined, payment):
            return Sighting(
                fate=Fate.FAILED, txid=mined.txid, reason="paid_long_ago", is_spent_otherwise=True
            )
        return _judged(mined, head)

    async def _is_it(self, seen: Seen, payment: Payment, node: StacksNode) -> bool:
        """Return whether a transaction is this payment, by all that the payer signed, or by its id if it is
        over.
        """
        if payment.payload is None:
            return seen.txid == payment.txid
        signed = _transaction(_inner(payment.payload))
        try:
            found = parse_transaction(await node.raw(seen.txid))
        except InvalidRequest:
            # Something that we do not read (a contract, several signers) is not what we read before.
            return False
        return replace(found, sponsor=signed.sponsor) == signed

    async def _ask_relay(self, payment: Payment) -> Sighting:
        """Without a node the relay is believed, but for ends that may be only its own view."""
        if payment.txid is None or _is_unsponsored(payment):
            return Sighting(fate=Fate.UNSEEN, reason="never_answered")
        return _said(await self._relay.transaction(payment.txid))


def _is_too_old(seen: Seen, payment: Payment) -> bool:
    """Return whether it was mined long before it was presented, and so paid for something else.

    One that we sent ourselves cannot be older than its record.
    """
    if seen.at is None:
        return payment.state is State.QUEUED
    return seen.at < payment.created_at.timestamp() - EARLIEST.total_seconds()


def _judged(seen: Seen, tip: int) -> Sighting:
    if seen.aborted:
        return Sighting(
            fate=Fate.FAILED,
            txid=seen.txid,
            block=seen.block,
            reason="chain_abort",
            is_spent_otherwise=True,
        )
    if not seen.succeeded or seen.height is None:
        return Sighting(fate=Fate.SEEN, txid=seen.txid, reason=seen.status)
    return Sighting(
        fate=Fate.CONFIRMED,
        txid=seen.txid,
        block=seen.block,
        height=seen.height,
        confirmations=max(1, tip - seen.height + 1),
        reason="confirmed",
    )


def _said(status: Status) -> Sighting:
    reason = status.reason or status.state.value
    match status.state:
        case PaymentState.CONFIRMED:
            # The relay names no depth; being in a block is all it knows.
            return Sighting(
                fate=Fate.CONFIRMED,
                txid=status.txid,
                block=f"height {status.height}",
                confirmations=1,
                reason=reason,
            )
        case PaymentState.FAILED if reason == _ABORTED:
            return Sighting(fate=Fate.FAILED, txid=status.txid, reason=reason)
        case PaymentState.QUEUED | PaymentState.BROADCASTING | PaymentState.MEMPOOL:
            return Sighting(fate=Fate.SEEN, txid=status.txid, reason=reason)
        case PaymentState.NOT_FOUND:
            # Relays forget within a day; it may be on the chain all the same.
            return Sighting(fate=Fate.UNKNOWN, reason=reason)
    return Sighting(fate=Fate.UNSEEN, reason=reason)


def _is_unsponsored(payment: Payment) -> bool:
    return payment.payload is not None and _transaction(_inner(payment.payload)).txid == payment.txid


def _inner(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = payload.get("payload")
    return inner if isinstance(inner, Mapping) else {}


def _transaction(inner: Mapping[str, Any]) -> Transaction:
    text = inner.get("transaction")
    return parse_hex(text if isinstance(text, str) else "")
