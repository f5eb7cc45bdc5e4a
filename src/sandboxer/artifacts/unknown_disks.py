"""Finds kept disks and volumes that no record accounts for, and removes them, on behalf of the quarantine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.backends.contract import Snapshots, Volumes
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.quarantine import Kind, Unknown
from sandboxer.store.engine import Store

NO_RECORD = "a disk without a record"
_KINDS = {"snp_": Kind.SNAPSHOT}


class UnknownKeptDisks:
    """Disks of snapshots and images without a record. `passing` are disks in use that never have one."""

    kinds = frozenset({Kind.SNAPSHOT, Kind.IMAGE})

    def __init__(self, dependencies: SandboxDependencies, store: Store, passing: Collection[str]) -> None:
        self._dependencies = dependencies
        self._store = store
        self._passing = passing

    async def find(self) -> Sequence[Unknown]:
        there = {
            disk: name
            for name, backend in self._dependencies.backends.items()
            if isinstance(backend, Snapshots)
            for disk in await backend.kept()
        }
        # Read after the disks, because a record is written before its disk is made.
        recorded = await self._store.read(recorded_disks)
        return [
            Unknown(id=disk, kind=_KINDS.get(disk[:4], Kind.IMAGE), backend=there[disk], why=NO_RECORD)
            for disk in sorted(there.keys() - recorded - set(self._passing))
        ]

    async def remove(self, unknown: Unknown) -> bool:
        backend = self._dependencies.backends[unknown.backend]
        is_wanted = unknown.id in self._passing or unknown.id in await self._store.read(recorded_disks)
        if is_wanted or not isinstance(backend, Snapshots):
            return False
        await backend.drop(unknown.id)
        return True


class UnknownVolumes:
    kinds = frozenset({Kind.VOLUME})

    def __init__(self, dependencies: SandboxDependencies, store: Store) -> None:
        self._dependencies = dependencies
        self._store = store

    async def find(self) -> Sequence[Unknown]:
        there = {
            volume: name
            for name, backend in self._dependencies.backends.items()
            if isinstance(backend, Volumes)
            for volume in await backend.volumes()
        }
        recorded = await self._store.read(recorded_volumes)
        return [
            Unknown(id=volume, kind=Kind.VOLUME, backend=there[volume], why=NO_RECORD)
            for volume in sorted(there.keys() - recorded)
        ]

    async def remove(self, unknown: Unknown) -> bool:
        backend = self._dependencies.backends[unknown.backend]
        if unknown.id in await self._store.read(recorded_volumes) or not isinstance(backend, Volumes):
            return False
        await backend.drop_volume(unknown.id)
        return True


def recorded_disks(conn: Connection) -> frozenset[str]:
    """Returns the kept disks of which a record says that something may be left."""
    taken = {one.id for one in snapshots.rows.living(conn)}
    return frozenset(taken | {one.id for one in images.rows.living(conn)})


def recorded_volumes(conn: Connection) -> frozenset[str]:
    return frozenset(one.id for one in volumes.rows.living(conn))
