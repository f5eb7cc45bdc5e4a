"""Stops what runs for suspended accounts, for keys that a suspended key delegated, and for those below them:
the one who was suspended could not stop it, and would be charged for it. Nothing is destroyed: disks are kept
for the retention time, and whoever is reinstated resumes what he wants.

A round compares states with accounts and never relies on having heard of a change. What is frozen does not
run, and stays as it is.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from sandboxer.accounts.records import find_suspended, held_by
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases.pause import stop
from sandboxer.store.reconciler import Reconciler

ACTOR = "system:suspension"
REASON = "account_suspended"
RETRY = timedelta(seconds=5)
# What another process on the same database suspended is noticed within this.
LONGEST_WAIT = timedelta(minutes=1)
_RUNNING = frozenset({State.READY, State.ACTIVE, State.GRACE})


class SuspensionLoop(Reconciler):
    def __init__(self, dependencies: SandboxDependencies) -> None:
        super().__init__("suspensions", dependencies.repository.store, dependencies.clock, retry=RETRY)
        self._dependencies = dependencies
        # With the account to which it was done.
        self._suspended: dict[str, str] = {}
        # Accounts that something happened to; when all of them are looked at.
        self._stirred: set[str] = set()
        self._look_at_all = dependencies.clock.now()

    async def _round(self) -> datetime:
        await self._look()
        running = [one for one in self._dependencies.repository.living() if one.state in _RUNNING]
        accounts, suspended = {one.account for one in running}, self._suspended
        held = await self.store.read(lambda conn: held_by(conn, accounts, suspended)) if suspended else set()
        due = [one for one in running if one.account in held]
        for sandbox in due:
            await self._attend(sandbox.id, partial(self._stop, sandbox))
        self._not_before = {one.id: self._not_before[one.id] for one in due if one.id in self._not_before}
        return min((*self._not_before.values(), self._look_at_all))

    async def _look(self) -> None:
        """Learn which accounts are suspended: of those that changed, and now and then of all."""
        stirred, self._stirred, now = self._stirred, set(), self.clock.now()
        if self._look_at_all <= now:
            self._suspended = await self.store.read(find_suspended)
            self._look_at_all = now + LONGEST_WAIT
        elif stirred:
            known = self._suspended.items()
            again = stirred.union(*(pair for pair in known if not stirred.isdisjoint(pair)))
            found = await self.store.read(lambda conn: find_suspended(conn, again))
            self._suspended = {one: by for one, by in known if one not in again} | found

    async def _stop(self, sandbox: Sandbox) -> None:
        caller = Caller(public_key=ACTOR, account=sandbox.account)
        await stop(self._dependencies, sandbox.id, caller, reason=REASON)

    def _hear(self, topics: frozenset[str]) -> None:
        accounts = {topic for topic in topics if not topic.startswith(("sbx_", "money."))}
        self._stirred |= accounts
        # A sandbox may still have been in the making when its account was suspended.
        if accounts or self._suspended:
            self.wake()
