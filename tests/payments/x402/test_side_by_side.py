"""Chains are followed side by side: what one does not answer, others do not wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments import records
from sandboxer.payments.lifecycle import Signal, State
from sandboxer.payments.records import Order, Payment, Purpose
from sandboxer.payments.x402.checkout import Checkout
from sandboxer.payments.x402.dependencies import Reconciler
from sandboxer.payments.x402.ways import Fate, Sighting, Way, Ways
from sandboxer.store.engine import Store, open_store

SILENT, QUICK, GONE = "eip155:1", "eip155:2", "eip155:3"
CONFIRMED = Sighting(fate=Fate.CONFIRMED, txid="0x1", block="0x2", confirmations=1)


class _Watcher:
    def __init__(self, answer: Sighting | None) -> None:
        self.asked = asyncio.Event()
        self._answer = answer

    async def look(self, payment: Payment) -> Sighting:
        self.asked.set()
        if self._answer is None:
            await asyncio.Event().wait()
        return cast(Sighting, self._answer)


def _pay(conn: Connection, network: str, number: int) -> Payment:
    now = SystemClock().now()
    order = Order(
        network=network,
        payer="0x" + "a" * 40,
        nonce=str(number),
        payload_hash=str(number),
        identifier=None,
        scheme="exact",
        asset="0x" + "b" * 40,
        amount=1,
        sats=1,
        account="acc_alice",
        purpose=Purpose.TOPUP,
        details={},
        payload={},
        requirements={},
        valid_until=None,
    )
    payment = records.open_payment(conn, order, now=now, look_at=now)[0]
    return records.move(conn, payment, Signal.SUBMIT, reason="test", now=now, look_at=now)


def _ways(watchers: dict[str, _Watcher]) -> Ways:
    ways, nobody = Ways(), cast(Any, None)
    for network, watcher in watchers.items():
        way = Way(
            network=network,
            scheme="exact",
            pay_to="x",
            accepts=(),
            facilitator=nobody,
            reader=nobody,
            watcher=watcher,
        )
        ways.register(way)
    return ways


async def _until(store: Store, payment: Payment, state: State) -> None:
    changed = asyncio.Event()
    leave = store.on_commit(lambda topics: changed.set())
    try:
        async with asyncio.timeout(60):
            while (await store.read(lambda conn: records.load(conn, payment.id))).state is not state:
                await changed.wait()
                changed.clear()
    finally:
        leave()


async def test_a_chain_that_does_not_answer_keeps_only_its_own_payments_waiting(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/sandboxer.db")
    clock = SystemClock()
    settings = SimpleNamespace(pending_limit_sats=1000)
    watchers = {SILENT: _Watcher(None), QUICK: _Watcher(CONFIRMED)}
    checkout = Checkout(store, clock, _ways(watchers), cast(Any, None), cast(Any, settings))

    def pay(conn: Connection) -> Payment:
        accounts.create(conn, id="acc_alice", actor="test", reason="test", now=clock.now())
        # Many that nobody answers for, all due before the one that is answered for.
        for number in range(60):
            _pay(conn, SILENT, number)
        _pay(conn, GONE, 0)
        return _pay(conn, QUICK, 0)

    first = await store.write(pay)
    async with own_tasks() as tasks:
        tasks.start(Reconciler(checkout, store, clock).run(), name="payments")
        await _until(store, first, State.CONFIRMED)
        await watchers[SILENT].asked.wait()
        # Also what comes while the silent one is still being asked.
        second = await store.write(lambda conn: _pay(conn, QUICK, 1))
        await _until(store, second, State.CONFIRMED)
    await store.close()
