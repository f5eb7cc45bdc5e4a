"""The reconciler of snapshots; see `artifacts/reconciler.py`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sandboxer.artifacts.reconciler import Funds, KeptReconciler
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.backends.contract import Backend, Snapshots
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.charges.caps import Reached
from sandboxer.store.reconciler import FAR


def demanded(
    snapshot: Snapshot, funds: Funds, *, now: datetime, reached: Reached | None = None
) -> Signal | None:
    """Returns the step that time and money demand, or the cap that was reached. Pure.

    A lock protects against time, and against lack of money only once.
    """
    if snapshot.state not in USABLE:
        return None
    if funds.is_ending:
        return Signal.DROP
    if snapshot.state is State.UNPAID:
        if funds.standing is Standing.ALIVE and reached is None:
            return Signal.PAID
        return Signal.RETENTION_OVER if _is_due(snapshot, now) else None
    if snapshot.rate_msats and (funds.standing is Standing.REAPED or reached is not None):
        return Signal.DRY
    return Signal.EXPIRE if _is_due(snapshot, now) and snapshot.locked_at is None else None


def looked_at(snapshot: Snapshot) -> datetime:
    """Returns when time alone will demand something."""
    if snapshot.state not in USABLE or snapshot.expires_at is None:
        return FAR
    if snapshot.state is State.KEPT and snapshot.locked_at is not None:
        return FAR
    return snapshot.expires_at


class SnapshotReconciler(KeptReconciler[Snapshot, Snapshots]):
    states, signals, usable, begun = State, Signal, USABLE, State.TAKING

    def __init__(self, use_cases: SnapshotUseCases) -> None:
        super().__init__(use_cases.repository, use_cases.sandboxes.dependencies, use_cases.policy.retention)
        self._use_cases = use_cases

    def host_of(self, backend: Backend) -> Snapshots | None:
        return backend if isinstance(backend, Snapshots) else None

    async def there(self, host: Snapshots) -> Iterable[str]:
        return await host.kept()

    async def drop(self, host: Snapshots, id: str) -> None:
        await host.drop(id)

    async def is_missing(self, host: Snapshots, id: str) -> bool:
        return await is_missed(host, id)

    async def remove(self, record: Snapshot, signal: Signal, reason: str) -> None:
        await self._use_cases.remove(record, signal, actor=self.actor, reason=reason)

    def demanded(
        self, record: Snapshot, funds: Funds, now: datetime, reached: Reached | None
    ) -> Signal | None:
        return demanded(record, funds, now=now, reached=reached)

    def moment_of(self, record: Snapshot) -> datetime:
        return looked_at(record)

    def unpaid(self, record: Snapshot, until: datetime) -> dict[str, object]:
        return {"expires_at": until, "paid_expires_at": record.expires_at}

    def paid(self, record: Snapshot) -> dict[str, object]:
        return {"expires_at": record.paid_expires_at, "paid_expires_at": None}

    async def tend(self, record: Snapshot) -> None:
        """Measures the exact size: the snapshot is charged for that, not for the most it might hold."""
        if record.state not in USABLE or record.is_measured:
            return
        sizes = await self._use_cases.sizes(record)
        if sizes is None:
            return
        size = sizes.referenced_bytes
        rate = self._use_cases.repository.rate(record, size)
        changes = {"size_bytes": size, "is_measured": True, "rate_msats": rate}
        data = {"size_bytes": size}
        await self.move(record, None, "measured", kind="measured", changes=changes, data=data)


async def is_missed(backend: Snapshots, disk_id: str) -> bool:
    """Tells whether the disk is gone or altered. Raises if that cannot be told: a host in trouble has lost
    nothing.
    """
    try:
        await backend.check_kept(disk_id)
    except (NotFound, Conflict):
        return True
    return False


def _is_due(snapshot: Snapshot, now: datetime) -> bool:
    return snapshot.expires_at is not None and snapshot.expires_at <= now
