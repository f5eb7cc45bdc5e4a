"""The reconciler of volumes; see `artifacts/reconciler.py`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sandboxer.artifacts.reconciler import Funds, KeptReconciler
from sandboxer.artifacts.volumes.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.volumes.records import MB, Volume
from sandboxer.artifacts.volumes.use_cases import VolumeUseCases
from sandboxer.backends.contract import Backend, Volumes
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.charges.caps import Reached


def demanded(volume: Volume, funds: Funds, *, now: datetime, reached: Reached | None = None) -> Signal | None:
    """Returns the step that money demands, or the cap that was reached. Pure."""
    if volume.state not in USABLE:
        return None
    if funds.is_ending:
        return Signal.DROP
    if volume.state is State.UNPAID:
        if funds.standing is Standing.ALIVE and reached is None:
            return Signal.PAID
        is_due = volume.expires_at is not None and volume.expires_at <= now
        return Signal.RETENTION_OVER if is_due else None
    if volume.rate_msats and (funds.standing is Standing.REAPED or reached is not None):
        return Signal.DRY
    return None


class VolumeReconciler(KeptReconciler[Volume, Volumes]):
    states, signals, usable, begun = State, Signal, USABLE, State.MAKING

    def __init__(self, use_cases: VolumeUseCases) -> None:
        super().__init__(use_cases.repository, use_cases.sandboxes.dependencies, use_cases.policy.retention)
        self._use_cases = use_cases

    def host_of(self, backend: Backend) -> Volumes | None:
        return backend if isinstance(backend, Volumes) else None

    async def there(self, host: Volumes) -> Iterable[str]:
        return await host.volumes()

    async def drop(self, host: Volumes, id: str) -> None:
        await host.drop_volume(id)

    async def remove(self, record: Volume, signal: Signal, reason: str) -> None:
        await self._use_cases.remove(record, signal, actor=self.actor, reason=reason)

    def demanded(self, record: Volume, funds: Funds, now: datetime, reached: Reached | None) -> Signal | None:
        return demanded(record, funds, now=now, reached=reached)

    async def mend(self, host: Volumes, record: Volume) -> None:
        usage = await host.volume_usage(record.id)
        if usage.limit_bytes not in (0, record.size_mb * MB):
            # A change of its size was not recorded.
            await host.resize_volume(record.id, size_mb=record.size_mb)
