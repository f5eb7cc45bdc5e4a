"""Stops what runs for suspended accounts, for keys that a suspended key delegated, and for those below them:
the one who was suspended could not stop it, and would be charged for it. Nothing is destroyed: disks are kept
for the retention time, and whoever is reinstated resumes what he wants.

A round compares states with accounts, and all of them once a minute, whatever was heard of. What is frozen
does not run, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from sandboxer.accounts.records import find_suspended, held_by
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
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
        # Those, and all that were delegated from them; and their sandboxes, which may run.
        self._held: set[str] = set()
        self._due: set[str] = set()
        # Accounts that something happened to; when all of them are looked at.
        self._stirred: set[str] = set()
        self._look_at_all = dependencies.clock.now()
        dependencies.repository.on_change(self._follow)

    async def _round(self) -> datetime:
        await self._look()
        known = [self._dependencies.repository.peek(id) for id in sorted(self._due)]
        due = [one for one in known if one is not None and one.state in _RUNNING]
        self._due = {one.id for one in due}
        for sandbox in due:
            await self._attend(sandbox.id, partial(self._stop, sandbox))
        self._not_before = {id: at for id, at in self._not_before.items() if id in self._due}
        return min((*self._not_before.values(), self._look_at_all))

    async def _look(self) -> None:
        """Learn which accounts are suspended: of those that changed, and now and then of all. Only if that
        was news are all sandboxes looked at: there may be thousands, and an event comes at every moment.
        """
        stirred, self._stirred, now, before = self._stirred, set(), self.clock.now(), self._suspended
        is_all = self._look_at_all <= now
        if is_all:
            self._suspended = await self.store.read(find_suspended)
            self._look_at_all = now + LONGEST_WAIT
        elif stirred:
            known = before.items()
            again = stirred.union(*(pair for pair in known if not stirred.isdisjoint(pair)))
            found = await self.store.read(lambda conn: find_suspended(conn, again))
            self._suspended = {one: by for one, by in known if one not in again} | found
        if (suspended := self._suspended) != before or (is_all and suspended):
            self._held = await self.store.read(lambda conn: held_by(conn, suspended))
            living = self._dependencies.repository.living()
            self._due = {one.id for one in living if one.account in self._held}

    async def _stop(self, sandbox: Sandbox) -> None:
        caller = Caller(public_key=ACTOR, account=sandbox.account)
        await stop(self._dependencies, sandbox.id, caller, reason=REASON)

    def _hear(self, topics: frozenset[str]) -> None:
        accounts = {topic for topic in topics if not topic.startswith(("sbx_", "money."))}
        self._stirred |= accounts
        if accounts:
            self.wake()

    def _follow(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        """A sandbox may still have been in the making when its account was suspended."""
        del steps
        if sandbox.account in self._held:
            self._due.add(sandbox.id)
            self.wake()
