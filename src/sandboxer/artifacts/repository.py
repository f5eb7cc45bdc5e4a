"""The repository of anything that is kept and charged by its size: a snapshot, an image, a volume.

Before a record is written it passes `_admit`, which checks funds (`accounts/storage.py`); the charge follows
the record in the transaction of every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from sandboxer.artifacts.charges import Charged, KeepCharges, Keeping
from sandboxer.kernel.clock import Clock
from sandboxer.observe import events
from sandboxer.store.engine import Store
from sandboxer.store.repository import Repository
from sandboxer.store.rows import Recorded, Rows
from sandboxer.store.steps import Change, Lifecycle, Step


class Kept(Recorded, Keeping, Protocol):
    @property
    def backend(self) -> str: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def locked_at(self) -> datetime | None: ...


K = TypeVar("K", bound=Kept)
T = TypeVar("T", bound=Step[Any, Any])


class KeptRepository(Repository[K, T]):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        rows: Rows[K],
        lifecycle: Lifecycle[Any],
        charges: KeepCharges | None,
    ) -> None:
        """`charges` None means that nothing is charged on this platform."""
        super().__init__(store, clock, rows, lifecycle)
        self._charges = charges

    async def living(self, account: str | None = None) -> Sequence[K]:
        return await self.store.read(lambda conn: self.rows.living(conn, account))

    async def has_locked(self, account: str) -> bool:
        """Tells whether a second proof guards anything of this kind that the account keeps."""
        return any(one.locked_at is not None for one in await self.living(account))

    def admit(self, conn: Connection, record: K, *, now: datetime) -> None:
        """Checks that its account may keep one of this size. Raises InsufficientCredit, Forbidden (a cap)."""
        if self._charges is not None:
            self._charges.admit(conn, self._charged(record), now=now)

    def tell(
        self,
        conn: Connection,
        record: K,
        kind: str,
        *,
        actor: str,
        reason: str,
        at: datetime,
        data: Mapping[str, object],
    ) -> None:
        events.record(conn, subject=record.id, kind=kind, actor=actor, reason=reason, at=at, data=data)

    def _charged(self, record: K) -> Charged:
        """Returns the record as the charges see it."""
        raise NotImplementedError

    def _facts(self, change: Change[K, T]) -> Mapping[str, object]:
        """Returns what its events say besides the step."""
        return {}

    def _charge(self, conn: Connection, charges: KeepCharges, change: Change[K, T]) -> None:
        at = change.entries[-1].step.at
        charges.apply(conn, self._charged(change.after), now=change.now, at=at)

    def _admit(self, conn: Connection, wanted: K, now: datetime) -> K:
        self.admit(conn, wanted, now=now)
        return wanted

    def _record(self, conn: Connection, change: Change[K, T]) -> None:
        after, facts = change.after, self._facts(change)
        if change.before is None:
            kind = f"{self.noun}.{after.state.value}"
            actor, reason = after.created_by, after.reason
            self.tell(conn, after, kind, actor=actor, reason=reason, at=change.now, data=facts)
            return
        if self._charges is not None:
            self._charge(conn, self._charges, change)
        for entry in change.entries:
            step, states = entry.step, {"from": entry.before.state.value, "to": entry.after.state.value}
            kind = step.kind or f"{self.noun}.{entry.after.state.value}"
            data = {**states, **facts, **step.data}
            self.tell(conn, after, kind, actor=step.actor, reason=step.reason, at=change.now, data=data)
