"""Routes of volumes, disks that outlive sandboxes. They are attached when a sandbox is created (POST
/v1/sandboxes).
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.snapshots.use_cases import Wanted as WantedSnapshot
from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes.lifecycle import State
from sandboxer.artifacts.volumes.repository import mode_of
from sandboxer.artifacts.volumes.use_cases import Wanted
from sandboxer.backends.contract import VolumeUsage
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import confirm_locked
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.requests import platform_of
from sandboxer.edges.http.routes.artifacts.snapshots import taken_snapshot
from sandboxer.wire.operations import volumes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import VolumePath
from sandboxer.wire.operations.volumes import ListVolumesQuery
from sandboxer.wire.snapshots import TakeSnapshot
from sandboxer.wire.volumes import (
    ChangeVolume,
    CreateVolume,
    RestoreVolume,
    Volume,
    VolumeAttachment,
    VolumePage,
)


async def create(asked: Asked[NoParameters, NoParameters, CreateVolume]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller
    wanted = Wanted(
        name=asked.body.name,
        size_mb=asked.body.size_mb,
        from_snapshot=asked.body.from_snapshot,
        labels=asked.body.labels,
    )

    async def act(bind: Bind | None) -> Response:
        return _made(await use_cases.create(wanted, who, also=bind))

    async def recall(volume_id: str) -> Response | None:
        made = await use_cases.recall(volume_id, who)
        return None if made is None else _made(made)

    return await once_bound(asked.request, act, recall=recall)


async def list_volumes(asked: Asked[NoParameters, ListVolumesQuery, None]) -> VolumePage:
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


async def get(asked: Asked[VolumePath, NoParameters, None]) -> Response:
    found = await asked.platform.artifacts.volumes.get(asked.path.volume, asked.caller)
    return await _shown(asked.request, found)


async def change(asked: Asked[VolumePath, NoParameters, ChangeVolume]) -> Response:
    changed = await asked.platform.artifacts.volumes.change(
        asked.path.volume,
        asked.caller,
        name=asked.body.name,
        labels=asked.body.labels,
        size_mb=asked.body.size_mb,
    )
    return await _shown(asked.request, changed)


async def drop(asked: Asked[VolumePath, NoParameters, None]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller
    found = await use_cases.get(asked.path.volume, who)
    is_confirmed = await confirm_locked(asked.request, found, action="drop")
    dropped = await use_cases.drop(found.id, who, despite_lock=is_confirmed)
    return await _shown(asked.request, dropped)


async def take(asked: Asked[VolumePath, NoParameters, TakeSnapshot]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller
    wanted = WantedSnapshot(name=asked.body.name, ttl=asked.body.ttl, labels=asked.body.labels)

    async def act(bind: Bind | None) -> Response:
        return taken_snapshot(await artifacts.volumes.snapshot(asked.path.volume, wanted, who, also=bind))

    async def recall(snapshot_id: str) -> Response | None:
        made = await artifacts.snapshots.recall(snapshot_id, who)
        return None if made is None else taken_snapshot(made)

    return await once_bound(asked.request, act, recall=recall)


async def restore(asked: Asked[VolumePath, NoParameters, RestoreVolume]) -> Response:
    platform, who = asked.platform, asked.caller
    use_cases = platform.artifacts.volumes
    found = await use_cases.get(asked.path.volume, who)
    await note_use(platform, who, "snapshot", asked.body.snapshot, "restore")
    is_confirmed = await confirm_locked(asked.request, found, action="restore")
    restored = await use_cases.restore(found.id, asked.body.snapshot, who, despite_lock=is_confirmed)
    return await _shown(asked.request, restored)


async def lock(asked: Asked[VolumePath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.volumes.get(asked.path.volume, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return await _shown(asked.request, await platform.artifacts.volumes.lock(found.id, who))


async def unlock(asked: Asked[VolumePath, NoParameters, None]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller
    found = await use_cases.get(asked.path.volume, who)
    await confirm_locked(asked.request, found, action="unlock")
    unlocked = await use_cases.unlock(found.id, who)
    return await _shown(asked.request, unlocked)


def shown_volume(
    record: records.Volume, attachments: Sequence[records.Attachment], usage: VolumeUsage | None = None
) -> Volume:
    return Volume.model_construct(
        id=record.id,
        name=record.name,
        state=record.state.value,
        reason=record.reason,
        backend=record.backend,
        size_mb=record.size_mb,
        used_bytes=None if usage is None else usage.used_bytes,
        from_snapshot=record.origin,
        labels=dict(record.labels),
        attachments=[
            VolumeAttachment.model_construct(
                sandbox_id=one.sandbox_id,
                path=one.path,
                mode=mode_of(one.is_read_only),
                attached_at=one.attached_at,
            )
            for one in attachments
        ],
        rate_msats_per_s=record.rate_msats if record.state is State.READY else 0,
        created_at=record.created_at,
        expires_at=record.expires_at,
        ended_at=record.ended_at,
        locked_at=record.locked_at,
    )


async def _shown(request: Request, record: records.Volume) -> Response:
    use_cases = platform_of(request).artifacts.volumes
    attached = await use_cases.attachments([record])
    return json_response(shown_volume(record, attached[record.id], await use_cases.usage(record)))


def _made(record: records.Volume) -> Response:
    answer = json_response(shown_volume(record, ()), 201)
    answer.headers["location"] = f"/v1/volumes/{record.id}"
    return answer


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_VOLUME, create),
    bind(operations.LIST_VOLUMES, list_volumes),
    bind(operations.GET_VOLUME, get),
    bind(operations.CHANGE_VOLUME, change),
    bind(operations.DROP_VOLUME, drop),
    bind(operations.TAKE_VOLUME_SNAPSHOT, take),
    bind(operations.RESTORE_VOLUME, restore),
    bind(operations.LOCK_VOLUME, lock),
    bind(operations.UNLOCK_VOLUME, unlock),
)
