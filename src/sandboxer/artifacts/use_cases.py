"""What the use cases of snapshots, images and volumes have in common: recall, lock, change, drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from sandboxer.artifacts.policy import KeepPolicy, check_room
from sandboxer.artifacts.records import OVER, USABLE, Holding, KeptRecord, Signal, State, holding
from sandboxer.artifacts.repository import KeptRepository
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import IllegalTransition, SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.use_cases.disks import reconciler_of
from sandboxer.sandboxes.use_cases.locks import refuse_locked
from sandboxer.store.steps import Step

K = TypeVar("K", bound=KeptRecord)
NOTHING = Holding(count=0, size_bytes=0)
# Its record, but not its size, is among those counted.
ITSELF = Holding(count=1, size_bytes=0)


@value_class
class KeptUseCases(Generic[K]):
    sandboxes: SandboxDependencies
    clock: Clock
    repository: KeptRepository[K]
    operations: Operations
    policy: KeepPolicy

    # What a noun says of itself.

    async def get(self, ref: str, caller: Caller) -> K:
        """Returns the record. Raises NotFound, also for one that the caller may not see."""
        raise NotImplementedError

    async def own(self, ref: str, caller: Caller) -> K:
        """Returns the record if the caller may change it."""
        return await self.get(ref, caller)

    async def erase(self, record: K) -> None:
        """Removes its disk. One that is gone already counts as success."""
        await reconciler_of(self.sandboxes.backends.get(record.backend), record.backend).drop(record.id)

    def refuse_over(self, record: K) -> None:
        """Raises IllegalTransition for one that has no disk to change."""
        if record.state not in USABLE:
            raise IllegalTransition(signal="change", state=record.state.value)

    def refuse_drop(self, record: K) -> None:
        """Raises what keeps it from being dropped now."""

    def refuse_drop_stored(self, conn: Connection, record: K) -> None:
        """Does the same in the transaction that records the intent."""

    def unlocked(self, record: K) -> Mapping[str, object]:
        """Returns how the record changes when it is unlocked."""
        return {"locked_at": None}

    # What all of them do.

    async def recall(self, id: str, caller: Caller) -> K | None:
        """Returns the record of a request whose answer was lost, or None if nothing was made."""
        await self.operations.free(id)
        record = await self.get(id, caller)
        return None if record.state in OVER else record

    async def lock(self, ref: str, caller: Caller) -> K:
        """Locks it. One that is locked already counts as success."""
        record = await self.own(ref, caller)
        if record.locked_at is not None:
            return record
        return await self.amend(record.id, caller, "locked", {"locked_at": self.clock.now()})

    async def unlock(self, ref: str, caller: Caller) -> K:
        """Unlocks it after the edge had it confirmed. One that is not locked counts as success."""
        record = await self.own(ref, caller)
        if record.locked_at is None:
            return record
        return await self.amend(record.id, caller, "unlocked", self.unlocked(record))

    async def drop(self, ref: str, caller: Caller, *, despite_lock: bool = False) -> K:
        """Drops it; what was made from it stays. A dropped one counts as success. `despite_lock` says that a
        second proof allowed it.
        """
        record = await self.own(ref, caller)
        check = None if despite_lock else refuse_locked
        reason = f"{_DROPPED.get(self.repository.noun, 'dropped')}_by_caller"
        return await self.remove(record, Signal.DROP, actor=actor_of(caller), reason=reason, check=check)

    async def remove(
        self,
        record: K,
        signal: Signal,
        *,
        actor: str,
        reason: str,
        check: Callable[[K], None] | None = None,
    ) -> K:
        """Brings it to `dropped`. The intent is recorded first, so that the next start finishes what a crash
        interrupted.
        """

        async def act() -> K:
            if (current := await self.repository.find(record.id)) is None or current.state in OVER:
                return current or record
            self.refuse_drop(record)
            if current.state is not State.DROPPING:
                intent: Step[K, Signal] = Step(
                    signal=signal,
                    actor=actor,
                    reason=reason,
                    check=check,
                    check_stored=self.refuse_drop_stored,
                )
                await self.repository.move(record.id, intent)
            await self.erase(record)
            done: Step[K, Signal] = Step(signal=Signal.REMOVED, actor=actor, reason=reason)
            return await self.repository.move(record.id, done)

        return await self.operations.perform(record.id, "drop", act)

    async def give_up(self, opened: K, error: BaseException, caller: Caller) -> None:
        """Removes what there is of one that could not be made, and records why."""
        await self.erase(opened)
        reason, why = "broken", "it broke"
        if isinstance(error, SandboxerError):
            reason, why = error.code, str(error)[:300]
        failed: Step[K, Signal] = Step(
            signal=Signal.FAIL, actor=actor_of(caller), reason=reason, data={"why": why}
        )
        await self.repository.move(opened.id, failed)

    async def amend(
        self,
        id: str,
        caller: Caller,
        what: str,
        changes: Mapping[str, object],
        data: Mapping[str, object] | None = None,
        **more: Any,
    ) -> K:
        """Changes the record within its state; `more` are further fields of the step."""
        fields = {"signal": None, "check": self.refuse_over, **more}
        step: Step[K, Signal] = Step(
            actor=actor_of(caller),
            reason=f"{what}_by_caller",
            kind=f"{self.repository.noun}.{what}",
            changes=changes,
            data=data or {},
            **fields,
        )
        return await self.repository.move(id, step)

    def check_room(
        self,
        conn: Connection,
        record: K,
        *,
        more: int = 1,
        more_bytes: int,
        counted: Holding = NOTHING,
    ) -> None:
        """Checks the quota of its account; `counted` says how much of it is among the records already."""
        if record.account != OWNER_ACCOUNT:
            found = holding(conn, self.repository.rows, record.account)
            held = Holding(
                count=found.count - counted.count, size_bytes=found.size_bytes - counted.size_bytes
            )
            check_room(held, self.policy, self.repository.noun, more=more, more_bytes=more_bytes)


# The word of an event's reason, where it is not `dropped`.
_DROPPED = {"image": "removed"}
