"""Sandboxes that were made against a payment which nobody had settled when the process ended.

Their payer has no answer and has paid nothing: they go, before their payments are given back. At start only.
"""

from __future__ import annotations

from sandboxer.payments import records
from sandboxer.payments.lifecycle import State
from sandboxer.sandboxes.destroy import remove
from sandboxer.sandboxes.room import Room
from sandboxer.store.engine import Store

ACTOR = "system:unpaid"


async def undo_unpaid(room: Room, store: Store) -> None:
    """Repeating it is harmless; a crash half-way is finished at the next start."""
    for payment in await store.read(records.interrupted):
        sandbox_id = payment.details.get("sandbox_id")
        if payment.state is not State.QUEUED or not isinstance(sandbox_id, str):
            continue
        sandbox = await room.book.find(sandbox_id)
        if sandbox is not None:
            await remove(room, sandbox, actor=ACTOR, reason="not_paid")
