"""The reconciler of published images; see `artifacts/reconciler.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from functools import partial

from sandboxer.artifacts.garbage import Kept, Tier, collectable
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import PASSING, ImageUseCases
from sandboxer.artifacts.reconciler import Funds, Glance, KeptReconciler, is_spared
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.snapshots.reconciler import is_missed
from sandboxer.backends.contract import Backend, Snapshots
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.charges.caps import Reached
from sandboxer.store.reconciler import FAR

log = logging.getLogger(__name__)
_SIGNALS = {
    Tier.ENDED: Signal.DROP,
    Tier.ACCOUNT_ENDED: Signal.DROP,
    Tier.UNPAID: Signal.RETENTION_OVER,
}


def by_money(image: PublishedImage, standing: Standing, reached: Reached | None = None) -> Signal | None:
    """Returns the signal that an empty or refilled bucket, or a reached cap, demands. Pure."""
    is_over = standing is Standing.REAPED or reached is not None
    if image.state is State.KEPT and image.rate_msats and is_over:
        return Signal.DRY
    if image.state is State.UNPAID and standing is Standing.ALIVE and reached is None:
        return Signal.PAID
    return None


class ImageReconciler(KeptReconciler[PublishedImage, Snapshots]):
    states, signals, usable, begun = State, Signal, USABLE, State.TAKING

    def __init__(self, use_cases: ImageUseCases) -> None:
        super().__init__(use_cases.repository, use_cases.sandboxes.dependencies, use_cases.policy.retention)
        self._use_cases = use_cases
        # Disks that existed at the start.
        self._found: set[str] = set()

    async def reconcile(self) -> None:
        living = await self.repository.living()
        await super().reconcile()
        # As long as there is a disk, the record may become valid again.
        listed = {one.id for one in living if one.state is not State.TAKING}
        listed |= self._found - {one.id for one in living}
        await asyncio.to_thread(self._use_cases.lists.sweep, listed)

    def host_of(self, backend: Backend) -> Snapshots | None:
        return backend if isinstance(backend, Snapshots) else None

    async def there(self, host: Snapshots) -> Iterable[str]:
        found = set(await host.kept())
        self._found |= found
        await _drop_passing(host, found)
        return found

    async def drop(self, host: Snapshots, id: str) -> None:
        await host.drop(id)

    async def is_missing(self, host: Snapshots, id: str) -> bool:
        return await is_missed(host, id)

    async def remove(self, record: PublishedImage, signal: Signal, reason: str) -> None:
        await self._use_cases.remove(record, signal, actor=self.actor, reason=reason)

    def demanded(
        self, record: PublishedImage, funds: Funds, now: datetime, reached: Reached | None
    ) -> Signal | None:
        """Returns the signal that money demands. Other reasons are left to the collection, which waits for
        readers.
        """
        signal = by_money(record, funds.standing, reached)
        is_due = self.moment_of(record) <= now and is_spared(record)
        return Signal.RETENTION_OVER if signal is None and is_due else signal

    def moment_of(self, record: PublishedImage) -> datetime:
        is_unpaid = record.state is State.UNPAID and record.expires_at is not None
        return record.expires_at or FAR if is_unpaid else FAR

    async def tend_all(self, seen: Glance[PublishedImage]) -> None:
        busy = frozenset(one.id for one in seen.living if self._use_cases.operations.running(one.id))
        kept = Kept(disks=frozenset(), in_use=busy | frozenset(self._use_cases.readers))
        ended = {account for account, funds in seen.funds_of.items() if funds.is_ending}
        known = {one.id: one for one in seen.living}
        for id_, tier in collectable(kept, seen.living, ended_accounts=ended, now=seen.now).items():
            await self._attend(id_, partial(self.remove, known[id_], _SIGNALS[tier], tier.value))


async def _drop_passing(backend: Snapshots, there: set[str]) -> None:
    """Drops copies that a killed server was publishing from. Their original still exists, so they are never
    the only copy.
    """
    for disk_id in sorted(one for one in there if one.startswith(f"{PASSING}_")):
        try:
            await backend.drop(disk_id)
            log.info("dropped %s: a copy that was being published from", disk_id)
        except Exception:
            log.exception("%s could not be dropped", disk_id)
