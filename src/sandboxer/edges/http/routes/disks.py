"""Routes of kept disks: snapshots of a sandbox's disk, and volumes, which outlive sandboxes.

A snapshot is taken, restored and forked from. Volumes are attached when a sandbox is created (POST
/v1/sandboxes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts import clones
from sandboxer.artifacts.records import State
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.snapshots.records import flattened
from sandboxer.artifacts.snapshots.use_cases import Wanted as WantedSnapshot
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.artifacts.volumes.repository import mode_of
from sandboxer.artifacts.volumes.use_cases import Wanted as WantedVolume
from sandboxer.backends.contract import KeptSizes, VolumeUsage
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.demands import confirm_locked, pass_gate
from sandboxer.edges.http.idempotency import Bind, BindOne, make_once, once_many
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.requests import copy_request, labels_of, mounts, platform_of
from sandboxer.kernel.values import is_volume_id
from sandboxer.sandboxes.use_cases.locks import is_guarded
from sandboxer.wire.operations import artifacts as operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.sandboxes import Resources, Sandbox
from sandboxer.wire.snapshots import (
    ChangeSnapshot,
    Clones,
    CloneSnapshot,
    FailedClone,
    Snapshot,
    SnapshotLine,
    SnapshotPage,
    SnapshotTree,
    TakeSnapshot,
    TakeVolumeSnapshot,
)
from sandboxer.wire.volumes import (
    ChangeVolume,
    CreateVolume,
    RestoreVolume,
    Volume,
    VolumeAttachment,
    VolumePage,
)


async def take_snapshot(asked: AskedPathBody[SandboxPath, TakeSnapshot]) -> Response:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    body = asked.body
    wanted = WantedSnapshot(name=body.name, ttl=body.ttl, labels=body.labels, memory=body.memory)

    async def make(bind: Bind | None) -> snapshots.Snapshot:
        return await use_cases.take(asked.path.sandbox_id, wanted, who, also=bind)

    return await make_once(asked.request, make, use_cases.recall, taken_snapshot)


async def list_snapshots(asked: AskedQuery[operations.ListSnapshotsQuery]) -> SnapshotPage:
    page = await asked.platform.artifacts.snapshots.list(
        asked.caller,
        sandbox_id=asked.query.volume_id or asked.query.sandbox_id,
        state=None if asked.query.state is None else State(asked.query.state),
        labels=labels_of(asked.query.label),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [shown_snapshot(record) for record in page.records]
    return SnapshotPage.model_construct(snapshots=shown, next_cursor=page.next_cursor)


async def snapshot_tree(asked: Asked) -> SnapshotTree:
    artifacts, who = asked.platform.artifacts, asked.caller
    grown = await artifacts.snapshots.tree(who, volumes=await artifacts.volumes.descent(who))
    lines = [
        from_record(
            SnapshotLine,
            branch.snapshot,
            parent_id=branch.snapshot.parent_id if depth else None,
            depth=depth,
            **_source(branch.snapshot),
            sandbox_ids=list(branch.sandbox_ids),
            volume_ids=list(branch.volume_ids),
        )
        for depth, branch in flattened(grown)
    ]
    return SnapshotTree.model_construct(lines=lines)


async def get_snapshot(asked: Asked[operations.SnapshotPath]) -> Snapshot:
    use_cases = asked.platform.artifacts.snapshots
    found = await use_cases.get(asked.path.snapshot_id, asked.caller)
    return shown_snapshot(found, await use_cases.sizes(found))


async def change_snapshot(asked: AskedPathBody[operations.SnapshotPath, ChangeSnapshot]) -> Snapshot:
    changed = await asked.platform.artifacts.snapshots.change(
        asked.path.snapshot_id,
        asked.caller,
        name=asked.body.name,
        labels=asked.body.labels,
        ttl=asked.body.ttl,
    )
    return shown_snapshot(changed)


async def drop_snapshot(asked: Asked[operations.SnapshotPath]) -> Snapshot:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    found = await use_cases.get(asked.path.snapshot_id, who)
    is_confirmed = await confirm_locked(asked.request, found, action="drop")
    return shown_snapshot(await use_cases.drop(asked.path.snapshot_id, who, despite_lock=is_confirmed))


async def restore_snapshot(asked: Asked[operations.SnapshotPath]) -> Sandbox:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    found = await use_cases.get(asked.path.snapshot_id, who)
    sandbox = await use_cases.source(found, who)
    is_confirmed = is_guarded(sandbox) and await confirm_locked(asked.request, sandbox, action="restore")
    return answers.sandbox(await use_cases.restore(asked.path.snapshot_id, who, despite_lock=is_confirmed))


async def clone_snapshot(asked: AskedPathBody[operations.SnapshotPath, CloneSnapshot]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        given = replace(copy_request(asked.body), volumes=await mounts(asked.request, asked.body.volumes))
        wanted = await artifacts.cloning.request_for(asked.path.snapshot_id, given, who)
        await pass_gate(asked.request, wanted.profile)
        batch = clones.Batch(count=asked.body.count, begun=begun, also=bind)
        made = await artifacts.cloning.clone(asked.path.snapshot_id, wanted, who, batch)
        return shown_clones(asked.request, made)

    return await once_many(asked.request, act)


def shown_clones(request: Request, made: clones.Clones) -> Response:
    failed = [
        FailedClone.model_construct(number=number, problem=problems.model_of(request, error))
        for number, error in made.failed.items()
    ]
    shown = [answers.sandbox(each) for each in made.sandboxes]
    left_out = [answers.attached_volume(one) for one in made.volumes_left_out]
    answer = Clones.model_construct(sandboxes=shown, failed=failed, volumes_left_out=left_out)
    return json_response(answer, 201)


async def lock_snapshot(asked: Asked[operations.SnapshotPath]) -> Snapshot:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.snapshots.get(asked.path.snapshot_id, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return shown_snapshot(await platform.artifacts.snapshots.lock(asked.path.snapshot_id, who))


async def unlock_snapshot(asked: Asked[operations.SnapshotPath]) -> Snapshot:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    await confirm_locked(asked.request, await use_cases.get(asked.path.snapshot_id, who), action="unlock")
    return shown_snapshot(await use_cases.unlock(asked.path.snapshot_id, who))


def shown_snapshot(record: snapshots.Snapshot, sizes: KeptSizes | None = None) -> Snapshot:
    return from_record(
        Snapshot,
        record,
        **_source(record),
        resources=from_record(Resources, record.resources),
        labels=dict(record.labels),
        size_bytes=record.size_bytes if sizes is None else sizes.referenced_bytes,
        size_is_exact=record.is_measured or sizes is not None,
        exclusive_bytes=None if sizes is None else sizes.exclusive_bytes,
        rate_msats_per_s=record.rate_msats if record.state is State.KEPT else 0,
        took_ms=dict(record.took_ms),
    )


def _source(record: snapshots.Snapshot) -> dict[str, Any]:
    is_volume = is_volume_id(record.sandbox_id)
    return {
        "sandbox_id": None if is_volume else record.sandbox_id,
        "volume_id": record.sandbox_id if is_volume else None,
    }


def taken_snapshot(made: snapshots.Snapshot) -> Response:
    return json_response(shown_snapshot(made), 201, location=f"/v1/snapshots/{made.id}")


async def create_volume(asked: AskedBody[CreateVolume]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller
    wanted = WantedVolume(
        name=asked.body.name,
        size_mb=asked.body.size_mb,
        from_snapshot=asked.body.from_snapshot,
        labels=asked.body.labels,
    )

    async def make(bind: Bind | None) -> volumes.Volume:
        return await use_cases.create(wanted, who, also=bind)

    return await make_once(asked.request, make, use_cases.recall, _made_volume)


async def list_volumes(asked: AskedQuery[operations.ListVolumesQuery]) -> VolumePage:
    use_cases = asked.platform.artifacts.volumes
    page = await use_cases.list(
        asked.caller,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    attached = await use_cases.attachments(page.records)
    shown = [shown_volume(one, attached[one.id]) for one in page.records]
    return VolumePage.model_construct(volumes=shown, next_cursor=page.next_cursor)


async def get_volume(asked: Asked[operations.VolumePath]) -> Response:
    found = await asked.platform.artifacts.volumes.get(asked.path.volume, asked.caller)
    return await _volume(asked.request, found)


async def change_volume(asked: AskedPathBody[operations.VolumePath, ChangeVolume]) -> Response:
    changed = await asked.platform.artifacts.volumes.change(
        asked.path.volume,
        asked.caller,
        name=asked.body.name,
        labels=asked.body.labels,
        size_mb=asked.body.size_mb,
    )
    return await _volume(asked.request, changed)


async def drop_volume(asked: Asked[operations.VolumePath]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller
    found = await use_cases.get(asked.path.volume, who)
    is_confirmed = await confirm_locked(asked.request, found, action="drop")
    return await _volume(asked.request, await use_cases.drop(found.id, who, despite_lock=is_confirmed))


async def take_volume_snapshot(asked: AskedPathBody[operations.VolumePath, TakeVolumeSnapshot]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller
    wanted = WantedSnapshot(name=asked.body.name, ttl=asked.body.ttl, labels=asked.body.labels)

    async def make(bind: Bind | None) -> snapshots.Snapshot:
        return await artifacts.volumes.snapshot(asked.path.volume, wanted, who, also=bind)

    return await make_once(asked.request, make, artifacts.snapshots.recall, taken_snapshot)


async def restore_volume(asked: AskedPathBody[operations.VolumePath, RestoreVolume]) -> Response:
    platform, who = asked.platform, asked.caller
    use_cases = platform.artifacts.volumes
    found = await use_cases.get(asked.path.volume, who)
    await note_use(platform, who, "snapshot", asked.body.snapshot, "restore")
    is_confirmed = await confirm_locked(asked.request, found, action="restore")
    restored = await use_cases.restore(found.id, asked.body.snapshot, who, despite_lock=is_confirmed)
    return await _volume(asked.request, restored)


async def lock_volume(asked: Asked[operations.VolumePath]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.volumes.get(asked.path.volume, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return await _volume(asked.request, await platform.artifacts.volumes.lock(found.id, who))


async def unlock_volume(asked: Asked[operations.VolumePath]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller
    found = await use_cases.get(asked.path.volume, who)
    await confirm_locked(asked.request, found, action="unlock")
    return await _volume(asked.request, await use_cases.unlock(found.id, who))


def shown_volume(
    record: volumes.Volume, attachments: Sequence[volumes.Attachment], usage: VolumeUsage | None = None
) -> Volume:
    return from_record(
        Volume,
        record,
        used_bytes=None if usage is None else usage.used_bytes,
        from_snapshot=record.origin,
        labels=dict(record.labels),
        attachments=[
            from_record(VolumeAttachment, one, mode=mode_of(one.is_read_only)) for one in attachments
        ],
        rate_msats_per_s=record.rate_msats if record.state is State.READY else 0,
    )


async def _volume(request: Request, record: volumes.Volume) -> Response:
    use_cases = platform_of(request).artifacts.volumes
    attached = await use_cases.attachments([record])
    return json_response(shown_volume(record, attached[record.id], await use_cases.usage(record)))


def _made_volume(record: volumes.Volume) -> Response:
    return json_response(shown_volume(record, ()), 201, location=f"/v1/volumes/{record.id}")


BINDINGS = (
    bind(operations.TAKE_SNAPSHOT, take_snapshot),
    bind(operations.LIST_SNAPSHOTS, list_snapshots),
    bind(operations.GET_SNAPSHOT_TREE, snapshot_tree),
    bind(operations.GET_SNAPSHOT, get_snapshot),
    bind(operations.CHANGE_SNAPSHOT, change_snapshot),
    bind(operations.DROP_SNAPSHOT, drop_snapshot),
    bind(operations.RESTORE_SNAPSHOT, restore_snapshot),
    bind(operations.CLONE_SNAPSHOT, clone_snapshot),
    bind(operations.LOCK_SNAPSHOT, lock_snapshot),
    bind(operations.UNLOCK_SNAPSHOT, unlock_snapshot),
    bind(operations.CREATE_VOLUME, create_volume),
    bind(operations.LIST_VOLUMES, list_volumes),
    bind(operations.GET_VOLUME, get_volume),
    bind(operations.CHANGE_VOLUME, change_volume),
    bind(operations.DROP_VOLUME, drop_volume),
    bind(operations.TAKE_VOLUME_SNAPSHOT, take_volume_snapshot),
    bind(operations.RESTORE_VOLUME, restore_volume),
    bind(operations.LOCK_VOLUME, lock_volume),
    bind(operations.UNLOCK_VOLUME, unlock_volume),
)
