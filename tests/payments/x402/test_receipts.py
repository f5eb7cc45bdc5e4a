"""Which payment a receipt's events speak for: one transaction may spend many nonces and pay us once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx

from sandboxer.kernel.clock import SystemClock
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.x402.evm_watcher import _TRANSFER, _USED, EvmWatcher, Node

PAYER, SHOP, TOKEN = "0x" + "aa" * 20, "0x" + "bb" * 20, "0x" + "cc" * 20
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def word(value: str) -> str:
    return "0x" + value.removeprefix("0x").rjust(64, "0")


def nonce(number: int) -> str:
    return word(f"{number:x}")


def used(number: int) -> dict[str, Any]:
    return {"address": TOKEN, "topics": [_USED, word(PAYER), nonce(number)], "data": "0x"}


def transfer(to: str, amount: int) -> dict[str, Any]:
    return {"address": TOKEN, "topics": [_TRANSFER, word(PAYER), word(to)], "data": hex(amount)}


def payment(number: int) -> Payment:
    return Payment(
        id="pay_1",
        state=State.QUEUED,
        reason="verified",
        network="eip155:1",
        payer=PAYER,
        nonce=nonce(number),
        payload_hash="",
        identifier=None,
        scheme="exact",
        asset=TOKEN,
        amount=500,
        sats=500,
        account="acc_a",
        purpose=Purpose.TOPUP,
        details={},
        payload=None,
        requirements=None,
        txid=None,
        block=None,
        valid_until=None,
        created_at=NOW,
        updated_at=NOW,
        look_at=None,
        looks=0,
    )


async def test_one_transfer_in_a_batch_pays_for_one_nonce() -> None:
    async with httpx.AsyncClient() as client:
        watcher = EvmWatcher(Node("http://node.test", client, network="eip155:1"), SystemClock(), pay_to=SHOP)
    batch = {"logs": [used(1), transfer(SHOP, 500), used(2), transfer(PAYER, 0)]}
    assert watcher._brought(payment(1), batch)
    assert not watcher._brought(payment(2), batch)
    backwards = {"logs": [used(2), transfer(PAYER, 0), used(1), transfer(SHOP, 500)]}
    assert watcher._brought(payment(1), backwards)
    assert not watcher._brought(payment(2), backwards)


async def test_a_token_may_tell_of_the_nonce_after_the_transfer() -> None:
    async with httpx.AsyncClient() as client:
        watcher = EvmWatcher(Node("http://node.test", client, network="eip155:1"), SystemClock(), pay_to=SHOP)
    assert watcher._brought(payment(1), {"logs": [transfer(SHOP, 500), used(1)]})
    assert not watcher._brought(payment(1), {"logs": [transfer(SHOP, 499), used(1)]})
