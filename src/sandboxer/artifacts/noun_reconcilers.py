"""The reconcilers of snapshots, images and volumes; see `reconciler.py`. `UnknownDisks` finds the disks on a
host that none of their records accounts for, and removes them, on behalf of the quarantine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from sandboxer.artifacts.garbage import Kept, Tier, collectable
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import PASSING, ImageUseCases
from sandboxer.artifacts.reconciler import Funds, Glance, K, KeptReconciler, demanded_by_money, is_spared
from sandboxer.artifacts.records import MB, USABLE, Signal, State
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.backends.contract import Backend, Snapshots, Volumes
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.sandboxes.quarantine import Kind, Unknown
from sandboxer.sandboxes.terms import Reached
from sandboxer.store.reconciler import FAR

log = logging.getLogger(__name__)
_SIGNALS = {
    Tier.ENDED: Signal.DROP,
    Tier.ACCOUNT_ENDED: Signal.DROP,
    Tier.UNPAID: Signal.RETENTION_OVER,
}
NO_RECORD = "a disk without a record"
_KINDS = {"snp_": Kind.SNAPSHOT}


class DiskReconciler(KeptReconciler[K, Snapshots]):
    """Reconciles what lies on a host as a kept disk: snapshots and images."""

    def host_of(self, backend: Backend) -> Snapshots | None:
        return backend if isinstance(backend, Snapshots) else None

    async def there(self, host: Snapshots) -> Iterable[str]:
        return await host.kept()

    async def drop(self, host: Snapshots, id: str) -> None:
        await host.drop(id)

    async def is_missing(self, host: Snapshots, id: str) -> bool:
        """Tells whether the disk is gone or altered. Raises if that cannot be told: a host in trouble has
        lost nothing.
        """
        try:
            await host.check_kept(id)
        except (NotFound, Conflict):
            return True
        return False


class SnapshotReconciler(DiskReconciler[Snapshot]):
    _use_cases: SnapshotUseCases

    def unpaid(self, record: Snapshot, until: datetime) -> dict[str, object]:
        return {"expires_at": until, "paid_expires_at": record.expires_at}

    def paid(self, record: Snapshot) -> dict[str, object]:
        return {"expires_at": record.paid_expires_at, "paid_expires_at": None}

    async def tend(self, record: Snapshot) -> None:
        """Measures the exact size: the snapshot is charged for that, not for the most it might hold."""
        if record.state not in USABLE or record.is_measured:
            return
        if (sizes := await self._use_cases.sizes(record)) is None:
            return
        size = sizes.referenced_bytes
        rate = self._use_cases.repository.rate(record.account, record.profile, size)
        changes = {"size_bytes": size, "is_measured": True, "rate_msats": rate}
        data = {"size_bytes": size}
        await self.move(record, None, "measured", kind="measured", changes=changes, data=data)


class ImageReconciler(DiskReconciler[PublishedImage]):
    _use_cases: ImageUseCases

    def __init__(self, use_cases: ImageUseCases) -> None:
        super().__init__(use_cases)
        # Disks that existed at the start.
        self._found: set[str] = set()

    async def reconcile(self) -> None:
        living = await self.repository.living()
        await super().reconcile()
        # As long as there is a disk, the record may become valid again.
        listed = {one.id for one in living if one.state is not State.TAKING}
        listed |= self._found - {one.id for one in living}
        await asyncio.to_thread(self._use_cases.lists.sweep, listed)

    async def there(self, host: Snapshots) -> Iterable[str]:
        found = set(await host.kept())
        self._found |= found
        await _drop_passing(host, found)
        return found

    def demanded(
        self, record: PublishedImage, funds: Funds, now: datetime, reached: Reached | None
    ) -> Signal | None:
        """Returns the signal that money demands. Other reasons are left to the collection, which waits for
        readers.
        """
        signal = demanded_by_money(record, funds.standing, reached)
        is_due = self.moment_of(record) <= now and is_spared(record)
        return Signal.RETENTION_OVER if signal is None and is_due else signal

    def moment_of(self, record: PublishedImage) -> datetime:
        return record.expires_at or FAR if record.state is State.UNPAID else FAR

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


class VolumeReconciler(KeptReconciler[Volume, Volumes]):
    def host_of(self, backend: Backend) -> Volumes | None:
        return backend if isinstance(backend, Volumes) else None

    async def there(self, host: Volumes) -> Iterable[str]:
        return await host.volumes()

    async def drop(self, host: Volumes, id: str) -> None:
        await host.drop_volume(id)

    async def mend(self, host: Volumes, record: Volume) -> None:
        usage = await host.volume_usage(record.id)
        if usage.limit_bytes not in (0, record.size_mb * MB):
            # A change of its size was not recorded.
            await host.resize_volume(record.id, size_mb=record.size_mb)


class UnknownDisks:
    """Finds what a reconciler could drop from a host and no record of its kinds accounts for. `passing` are
    disks in use that never have a record.
    """

    def __init__(
        self, reconciler: KeptReconciler[Any, Any], kinds: Sequence[Kind], passing: Collection[str] = ()
    ) -> None:
        self.kinds = frozenset(kinds)
        # Of a disk whose id does not say it.
        self._kind = kinds[-1]
        self._reconciler = reconciler
        self._recorded = recorded_volumes if self._kind is Kind.VOLUME else recorded_disks
        self._passing = passing

    async def find(self) -> Sequence[Unknown]:
        there = {
            disk: name
            for name, backend in self._reconciler.dependencies.backends.items()
            if (host := self._reconciler.host_of(backend)) is not None
            for disk in await self._reconciler.there(host)
        }
        # Read after the disks, because a record is written before its disk is made.
        accounted = await self._accounted()
        return [
            Unknown(id=disk, kind=_KINDS.get(disk[:4], self._kind), backend=there[disk], why=NO_RECORD)
            for disk in sorted(there.keys() - accounted)
        ]

    async def remove(self, unknown: Unknown) -> bool:
        host = self._reconciler.host_of(self._reconciler.dependencies.backends[unknown.backend])
        if unknown.id in await self._accounted() or host is None:
            return False
        await self._reconciler.drop(host, unknown.id)
        return True

    async def _accounted(self) -> frozenset[str]:
        return await self._reconciler.store.read(self._recorded) | set(self._passing)


def recorded_disks(conn: Connection) -> frozenset[str]:
    """Returns the kept disks of which a record says that something may be left."""
    taken = {one.id for one in snapshots.rows.living(conn)}
    return frozenset(taken | {one.id for one in images.rows.living(conn)})


def recorded_volumes(conn: Connection) -> frozenset[str]:
    return frozenset(one.id for one in volumes.rows.living(conn))
