"""New sandboxes from a snapshot: one, or up to a hundred at once, each through the ordinary create."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from sandboxer.accounts.authority import AuthorityBook
from sandboxer.artifacts.snapshots.desk import SnapshotDesk
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, InvalidRequest, SandboxerError
from sandboxer.sandboxes.profiles import excess
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest, Origin, WantedResources
from sandboxer.sandboxes.slots import Slots

MOST_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Clones:
    sandboxes: Sequence[Sandbox]
    # By number, from 0: what kept one from being made.
    failed: Mapping[int, SandboxerError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloning:
    desk: SnapshotDesk
    authorities: AuthorityBook
    slots: Slots

    async def request_for(self, snapshot_id: str, request: CreateRequest, caller: Caller) -> CreateRequest:
        """The request, with this snapshot as its origin, and as it was taken where nothing is asked for."""
        snapshot = await self.desk.usable(snapshot_id, caller)
        return replace(
            request,
            profile=request.profile or snapshot.profile,
            resources=self._resources(snapshot, request),
            origin=Origin(disk_id=snapshot.id, backend=snapshot.backend, image=snapshot.image),
        )

    async def clone(self, snapshot_id: str, request: CreateRequest, caller: Caller, *, count: int) -> Clones:
        """All at once; each is made or not by itself. Raises what went wrong if none could be made."""
        if not 1 <= count <= MOST_AT_ONCE:
            raise InvalidRequest(field="count", why=f"from 1 to {MOST_AT_ONCE}")
        wanted = await self.request_for(snapshot_id, request, caller)
        made: dict[int, Sandbox] = {}
        failed: dict[int, SandboxerError] = {}

        async def one(number: int) -> None:
            named = wanted
            if count > 1 and wanted.name is not None:
                named = replace(wanted, name=f"{wanted.name[:59]}-{number + 1}")
            try:
                made[number] = await self._create(named, caller)
            except SandboxerError as error:
                failed[number] = error

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))
        if not made:
            raise failed.get(0) or Broken(why="no clone was made, and nobody knows why")
        return Clones(
            sandboxes=[made[number] for number in sorted(made)], failed=dict(sorted(failed.items()))
        )

    async def _create(self, request: CreateRequest, caller: Caller) -> Sandbox:
        async with self.slots.taken(await self.authorities.of(caller)):
            return await self.desk.sandboxes.create(request, caller)

    def _resources(self, snapshot: Snapshot, request: CreateRequest) -> WantedResources:
        """Those of its sandbox, as far as the profile allows them now."""
        profile = self.desk.sandboxes.room.profiles.get(request.profile or snapshot.profile)
        too_much = set(excess(snapshot.resources, profile.resources_max))
        asked = request.resources
        return WantedResources(
            **{
                f.name: getattr(snapshot.resources, f.name)
                if getattr(asked, f.name) is None and f.name not in too_much
                else getattr(asked, f.name)
                for f in fields(WantedResources)
            }
        )
