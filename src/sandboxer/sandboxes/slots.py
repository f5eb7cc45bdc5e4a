"""How many sandboxes at once a delegated key may have: its slots, less those it gave to its children.

What is kept counts, stopped ones too, so that resuming needs no slot. Creates and cuts of one account come
one after the other here; without a limit nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from sandboxer.accounts.authority import Authority
from sandboxer.accounts.delegation import slots_left
from sandboxer.kernel.errors import Forbidden
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.room import Room
from sandboxer.store.engine import Store

_OVER = frozenset({State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED})


class Slots:
    def __init__(self, room: Room, store: Store) -> None:
        self._room = room
        self._store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def in_use(self, account: str) -> int:
        """By the account itself."""
        kept = self._room.book.living()
        return sum(1 for sandbox in kept if sandbox.account == account and sandbox.state not in _OVER)

    @asynccontextmanager
    async def alone(self, account: str) -> AsyncIterator[None]:
        """Nobody else takes or gives slots of this account meanwhile."""
        lock = self._locks.setdefault(account, asyncio.Lock())
        async with lock:
            yield

    @asynccontextmanager
    async def taken(self, authority: Authority) -> AsyncIterator[None]:
        """Room for one more, until it is created. Raises Forbidden if there is none."""
        if authority.slots is None:
            yield
            return
        account = authority.account.id
        async with self.alone(account):
            used = self.in_use(account)
            left = await self._store.read(lambda conn: slots_left(conn, authority, used))
            if left is not None and left < 1:
                raise Forbidden(
                    why=f"this key may have {authority.slots} sandboxes at once, its children's included",
                    reason="no_slots",
                    slots=authority.slots,
                    hint="Destroy a sandbox, or end a child key, and try again.",
                )
            yield
