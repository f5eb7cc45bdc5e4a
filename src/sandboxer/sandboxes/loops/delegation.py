"""Ends delegated keys, bottom-up: destroys what a revoked or expired key still has, then releases its budget.

Wakes when an account changed or the next key expires. What could not be ended now is tried again; what was
under way at a crash is found again at the start, since the keys say themselves that they are ending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from sandboxer.accounts import revocation
from sandboxer.accounts.delegation import DelegatedKey
from sandboxer.identity.keys import Caller, Keys
from sandboxer.sandboxes.destroy import destroy
from sandboxer.sandboxes.room import Room
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# Keys cut by another process on the same database are noticed within this.
LONGEST_WAIT = timedelta(minutes=1)
RETRY = timedelta(seconds=5)
_OF_ACCOUNTS = "acc_"


class DelegationEnds:
    def __init__(self, room: Room, store: Store, keys: Keys) -> None:
        self._room = room
        self._store = store
        self._keys = keys
        self._changed = asyncio.Event()

    async def run(self) -> None:
        leave: Callable[[], None] = self._store.on_commit(self._hear)
        try:
            while True:
                self._changed.clear()
                wait = await self._round()
                try:
                    async with asyncio.timeout(wait.total_seconds()):
                        await self._changed.wait()
                except TimeoutError:
                    pass
        finally:
            leave()

    async def _round(self) -> timedelta:
        """End what is due; returns how long nothing more will be."""
        try:
            await self._expire()
            while ending := await self._store.read(revocation.ending):
                if not await self._end(ending):
                    return RETRY
            due = await self._store.read(revocation.next_expiry)
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("could not end delegated keys")
            return RETRY
        if due is None:
            return LONGEST_WAIT
        return min(LONGEST_WAIT, max(timedelta(0), due - self._room.clock.now()))

    async def _expire(self) -> None:
        now = self._room.clock.now()
        while ended := await self._store.write(lambda conn: revocation.expire_due(conn, now=now)):
            for public_key in (gone for revoked in ended for gone in revoked.public_keys):
                self._keys.forget(public_key)

    async def _end(self, ending: list[DelegatedKey]) -> bool:
        """False if nothing of it could be finished."""
        for key in ending:
            await self._destroy_all(key)
        accounts = [key.account for key in ending if not self._has_sandboxes(key)]
        now = self._room.clock.now()
        released = await self._store.write(lambda conn: revocation.finish_all(conn, accounts, now=now))
        return bool(released)

    async def _destroy_all(self, key: DelegatedKey) -> None:
        caller = Caller(public_key=key.public_key, account=key.account)
        for sandbox in self._room.book.living():
            if sandbox.account == key.account:
                try:
                    await destroy(self._room, sandbox.id, caller, despite_lock=True)
                except Exception:
                    # One that cannot be destroyed now must not keep the others alive.
                    log.exception("could not destroy %s of an ending key", sandbox.id)

    def _has_sandboxes(self, key: DelegatedKey) -> bool:
        return any(sandbox.account == key.account for sandbox in self._room.book.living())

    def _hear(self, topics: frozenset[str]) -> None:
        if any(topic.startswith(_OF_ACCOUNTS) for topic in topics):
            self._changed.set()
