"""The credit loop brings sandboxes in line with their account's credit: grace, reaped, paid, woken.

It looks at an account when anything happened to it or to its paying sandboxes, and at all of them at start.
It compares the account's condition with the sandboxes' states and never relies on having heard an event, so a
crash loses nothing. It also stops what has reached a spending cap, and moves sandboxes in and out of the
slots of a tier. What is demanded is decided in `sandboxes/demands.py`.

`DelegationEnds` ends delegated keys, bottom-up: it destroys the sandboxes of a revoked or expired key, then
releases its budget. It wakes when an account changed or the next key expires. What could not be ended is
tried again, and a start continues what a crash interrupted, because the keys are marked as ending.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sandboxer.accounts import revocation
from sandboxer.accounts.delegation import DelegatedKey
from sandboxer.accounts.entitlements import Entitlement, Move, moves
from sandboxer.backends.contract import Stops
from sandboxer.identity.keys import Caller, Keys
from sandboxer.kernel.errors import Refused
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.charging import DRY_WHILE_FROZEN, OCCUPYING, is_frozen, living_of
from sandboxer.sandboxes.demands import (
    Condition,
    Demand,
    is_kept,
    keeps_free,
    plan_look,
    read_condition,
    to_wake,
    wanted,
)
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.lifetime import destroy, remove
from sandboxer.sandboxes.use_cases.pause import resume, stopped_changes
from sandboxer.store.engine import Store
from sandboxer.store.reconciler import FAR, Reconciler

log = logging.getLogger(__name__)
ACTOR = "system:purse"
RETRY = timedelta(seconds=5)
# Signals that do not change the charge.
_QUIET = frozenset({Signal.WORK_BEGAN, Signal.WORK_ENDED})
# Signals that end the processes.
_ENDS = frozenset({Signal.GRACE_OVER, Signal.CAP_REACHED})


class CreditLoop(Reconciler):
    def __init__(self, dependencies: SandboxDependencies, store: Store) -> None:
        super().__init__("the credit loop", store, dependencies.clock, retry=RETRY)
        self._dependencies = dependencies
        self._stirred: set[str] = set()
        # When to look at an account because its tier ends.
        self._later: dict[str, datetime] = {}
        dependencies.repository.on_change(self._follow)

    async def run(self) -> None:
        # All of them at the start.
        self._stirred |= {one.account for one in self._dependencies.repository.living()}
        await super().run()

    async def _round(self) -> datetime:
        now, paused = self.clock.now(), self._not_before
        self._stirred |= {one for later in (self._later, paused) for one, at in later.items() if at <= now}
        stirred, self._stirred = self._stirred, set()
        for account in sorted(stirred):
            # Its pause after a failure ends too, because something happened to it since.
            self._later.pop(account, None)
            paused.pop(account, None)
            if self._of(account):
                await self._attend(account, partial(self.attend, account))
        return min((*self._later.values(), *paused.values()), default=FAR)

    async def attend(self, account: str) -> None:
        """Carry out what the account's condition demands of each of its sandboxes."""
        condition = await self._look(account)
        if await self._change_sides(account, condition.entitlement):
            condition = await self._look(account)
        before = self._versions(account)
        for sandbox in self._of(account):
            if wanted(sandbox, condition) is not None:
                await self._carry_out(sandbox, condition)
            elif sandbox.terms.is_capped:
                await self._cap(sandbox, is_capped=False)
            elif is_kept(sandbox):
                await self._keep(sandbox, condition)
                await self._keep_longer(sandbox)
        await self._wake(account, condition)
        is_same = self._versions(account) == before
        await self._plan(account, condition if is_same else await self._look(account))

    async def _look(self, account: str) -> Condition:
        mine, now = self._of(account), self.clock.now()
        return await self.store.read(lambda conn: read_condition(conn, account, mine, now=now))

    async def _plan(self, account: str, condition: Condition) -> None:
        """Have the bucket timer wake this loop when the next cap is reached."""
        now = self.clock.now()
        if condition.look_at != condition.known_look_at:
            await self.store.write(lambda conn: plan_look(conn, account, now=now))

    def _of(self, account: str) -> list[Sandbox]:
        return [one for one in self._dependencies.repository.living(account) if not one.terms.is_free]

    def _versions(self, account: str) -> list[tuple[str, int]]:
        """Return the versions of all its sandboxes; equal versions mean that nothing changed."""
        return [(sandbox.id, sandbox.version) for sandbox in self._of(account)]

    async def _change_sides(self, account: str, entitlement: Entitlement | None) -> bool:
        now = self.clock.now()
        living = living_of(s for s in self._of(account) if s.state in OCCUPYING)
        changed = moves(living, entitlement, now=now)
        for move in changed:
            await self._change_side(move)
        if entitlement is not None and entitlement.is_live(now):
            self._later[account] = entitlement.until
        return bool(changed)

    async def _change_side(self, move: Move) -> None:
        await self._dependencies.repository.amend(
            move.id,
            kind="sandbox.terms_changed",
            actor=ACTOR,
            reason="entitled" if move.to_free else "pays_per_second",
            decide=lambda sandbox: {"terms": replace(sandbox.terms, is_entitled=move.to_free)},
        )

    async def _cap(self, sandbox: Sandbox, *, is_capped: bool, at: datetime | None = None) -> None:
        """Charge nothing beyond a cap for a sandbox that could not be stopped; charge it again if the cap
        was raised or is over before it could.
        """
        await self._dependencies.repository.amend(
            sandbox.id,
            kind="sandbox.terms_changed",
            actor=ACTOR,
            reason="capped" if is_capped else "pays_per_second",
            decide=lambda one: {"terms": replace(one.terms, is_capped=is_capped)},
            at=at,
        )

    async def _keep(self, sandbox: Sandbox, condition: Condition) -> None:
        """Charge the disk of a stopped sandbox at its rate, or at none if any rate would be too much. A lock
        does not pay: what it keeps is gone then after its time, which begins now.
        """
        is_free, at = keeps_free(sandbox, condition)
        if is_free is sandbox.terms.keeps_free or not (is_free or sandbox.terms.card.stored):
            return
        kept = await self._dependencies.repository.kept_for(sandbox, self._dependencies.retention)
        until = self.clock.now() + kept

        def decide(one: Sandbox) -> dict[str, object]:
            is_waiting = is_free and one.locked_at is not None and one.state is State.STOPPED
            ends = {"expires_at": until} if is_waiting else {}
            return {"terms": replace(one.terms, keeps_free=is_free), **ends}

        await self._dependencies.repository.amend(
            sandbox.id,
            kind="sandbox.terms_changed",
            actor=ACTOR,
            reason="kept_free" if is_free else "pays_for_its_disk",
            decide=decide,
            at=at,
        )

    async def _keep_longer(self, sandbox: Sandbox) -> None:
        """Keep its disk for the whole retention time if somebody paid since it stopped."""
        dependencies, ends = self._dependencies, sandbox.expires_at
        whole = sandbox.state_since + dependencies.retention
        if ends is None or ends >= whole:
            return
        until = sandbox.state_since + await dependencies.repository.kept_for(sandbox, dependencies.retention)
        if until > ends:
            await dependencies.repository.amend(
                sandbox.id,
                kind="sandbox.kept_longer",
                actor=ACTOR,
                reason="paid",
                decide=lambda one: {"expires_at": until} if one.expires_at == ends else {},
            )

    async def _wake(self, account: str, condition: Condition) -> None:
        if (sandbox := to_wake(self._of(account), condition)) is None:
            return
        try:
            # This wakes the loop again, and the next round checks whether there is enough for one more.
            caller = Caller(public_key=ACTOR, account=account)
            await resume(self._dependencies, sandbox.id, caller, reason=Signal.PAID.value)
        except Refused as error:
            # There is no slot, cap or time left for it: its owner has to decide.
            log.info("%s stays asleep: %s", sandbox.id, error)

    async def _carry_out(self, sandbox: Sandbox, condition: Condition) -> None:
        demand = wanted(sandbox, condition)
        is_end = demand is not None and (demand.signal in _ENDS or condition.standing is Standing.REAPED)
        if demand is not None and is_end and not isinstance(self._dependencies.backend_of(sandbox), Stops):
            # What cannot be kept without running is removed.
            await remove(self._dependencies, sandbox, actor=ACTOR, reason=demand.reason)
            return
        sandbox_id = sandbox.id

        async def act() -> None:
            # Looked at again: another operation may have ended while this one waited for its turn.
            while (sandbox := self._dependencies.repository.peek(sandbox_id)) is not None:
                if (demand := wanted(sandbox, condition)) is None:
                    return
                await self._step(sandbox, demand, condition)

        await self._dependencies.operations.perform(sandbox_id, "money", act)

    async def _step(self, sandbox: Sandbox, demand: Demand, condition: Condition) -> None:
        dependencies, reason = self._dependencies, demand.reason
        changes: dict[str, object] = {}
        if demand.signal is Signal.DRY and is_frozen(sandbox):
            reason = DRY_WHILE_FROZEN
        if demand.signal in _ENDS:
            try:
                await _stop(dependencies, sandbox)
            except Exception:
                if demand.signal is Signal.CAP_REACHED and not sandbox.terms.is_capped:
                    await self._cap(sandbox, is_capped=True, at=demand.at)
                raise
            is_free, _ = keeps_free(sandbox, condition)
            kept = await dependencies.repository.kept_for(sandbox, dependencies.retention)
            changes = dict(stopped_changes(sandbox, dependencies.clock.now(), kept))
            changes["terms"] = replace(sandbox.terms, keeps_free=is_free, is_capped=False, memory_mb=0)
        step = Step(
            signal=demand.signal, actor=ACTOR, reason=reason, changes=changes, data=demand.data, at=demand.at
        )
        await dependencies.repository.move(sandbox.id, step)

    def _hear(self, topics: frozenset[str]) -> None:
        if accounts := {topic for topic in topics if not topic.startswith(("sbx_", "money."))}:
            self._stirred |= accounts
            self.wake()

    def _follow(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        # A change without a step may be of terms: two that were decided at once may use one slot too many.
        is_quiet = bool(steps) and all(step.signal in _QUIET for step in steps)
        if not sandbox.terms.is_free and not is_quiet:
            self._stirred.add(sandbox.account)
            self.wake()


async def _stop(dependencies: SandboxDependencies, sandbox: Sandbox) -> None:
    backend = dependencies.backend_of(sandbox)
    if sandbox.handle is not None and isinstance(backend, Stops):
        await backend.stop(sandbox.handle)


# Keys cut by another process on the same database are noticed within this.
LONGEST_WAIT = timedelta(minutes=1)
# Finished in one transaction: nobody else writes meanwhile.
KEYS_AT_ONCE = 20
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
        for start in range(0, len(accounts), KEYS_AT_ONCE):
            some, now = accounts[start : start + KEYS_AT_ONCE], self.clock.now()
            finish = partial(revocation.finish_all, accounts=some, now=now)
            is_any = bool(await self.store.write(finish)) or is_any
        return is_any

    async def _destroy_all(self, key: DelegatedKey) -> None:
        caller = Caller(public_key=key.public_key, account=key.account)
        for sandbox in self._dependencies.repository.living(key.account):
            try:
                await destroy(self._dependencies, sandbox.id, caller, despite_lock=True)
            except Exception:
                # One that cannot be destroyed now must not keep the others alive.
                log.exception("could not destroy %s of an ending key", sandbox.id)

    def _has_sandboxes(self, key: DelegatedKey) -> bool:
        return any(self._dependencies.repository.living(key.account))

    def _hear(self, topics: frozenset[str]) -> None:
        if any(topic.startswith(_OF_ACCOUNTS) for topic in topics):
            self.wake()
