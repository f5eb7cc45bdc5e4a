"""Ends delegated keys, bottom-up: destroys the sandboxes of a revoked or expired key, then releases its
budget.

This loop wakes when an account changed or the next key expires. What could not be ended is tried again, and a
start continues what a crash interrupted, because the keys are marked as ending.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from functools import partial

from sandboxer.accounts import revocation
from sandboxer.accounts.delegation import DelegatedKey
from sandboxer.identity.keys import Caller, Keys
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.use_cases.destroy import destroy
from sandboxer.store.engine import Store
from sandboxer.store.reconciler import FAR, Reconciler

log = logging.getLogger(__name__)
# Keys cut by another process on the same database are noticed within this.
LONGEST_WAIT = timedelta(minutes=1)
RETRY = timedelta(seconds=5)
# Finished in one transaction: nobody else writes meanwhile.
AT_ONCE = 20
_OF_ACCOUNTS = "acc_"


class DelegationEnds(Reconciler):
    def __init__(self, dependencies: SandboxDependencies, store: Store, keys: Keys) -> None:
        super().__init__("ends of delegated keys", store, dependencies.clock, retry=RETRY)
        self._dependencies = dependencies
        self._keys = keys

    async def _round(self) -> datetime:
        await self._expire()
        while ending := await self.store.read(revocation.ending):
            if not await self._end(ending):
                return self.clock.now() + RETRY
        due = await self.store.read(revocation.next_expiry)
        return min(due or FAR, self.clock.now() + LONGEST_WAIT)

    async def _expire(self) -> None:
        now = self.clock.now()
        while ended := await self.store.write(lambda conn: revocation.expire_due(conn, now=now)):
            for public_key in (gone for revoked in ended for gone in revoked.public_keys):
                self._keys.forget(public_key)

    async def _end(self, ending: list[DelegatedKey]) -> bool:
        """End these keys. Returns False if none of them could be finished."""
        for key in ending:
            await self._destroy_all(key)
        accounts = [key.account for key in ending if not self._has_sandboxes(key)]
        is_any = False
        for start in range(0, len(accounts), AT_ONCE):
            some, now = accounts[start : start + AT_ONCE], self.clock.now()
            finish = partial(revocation.finish_all, accounts=some, now=now)
            is_any = bool(await self.store.write(finish)) or is_any
        return is_any

    async def _destroy_all(self, key: DelegatedKey) -> None:
        caller = Caller(public_key=key.public_key, account=key.account)
        for sandbox in self._dependencies.repository.living():
            if sandbox.account == key.account:
                try:
                    await destroy(self._dependencies, sandbox.id, caller, despite_lock=True)
                except Exception:
                    # One that cannot be destroyed now must not keep the others alive.
                    log.exception("could not destroy %s of an ending key", sandbox.id)

    def _has_sandboxes(self, key: DelegatedKey) -> bool:
        return any(sandbox.account == key.account for sandbox in self._dependencies.repository.living())

    def _hear(self, topics: frozenset[str]) -> None:
        if any(topic.startswith(_OF_ACCOUNTS) for topic in topics):
            self.wake()
