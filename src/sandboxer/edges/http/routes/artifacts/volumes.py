"""Volumes: disks that outlive sandboxes. They are attached when a sandbox is made (POST /v1/sandboxes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.snapshots.desk import Wanted as WantedSnapshot
from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes.attaching import mode_of
from sandboxer.artifacts.volumes.desk import Wanted
from sandboxer.artifacts.volumes.lifecycle import State
from sandboxer.backends.contract import VolumeUsage
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm_locked
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.routes.artifacts.snapshots import taken_snapshot
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_use
from sandboxer.wire.snapshots import Snapshot, TakeSnapshot
from sandboxer.wire.volumes import (
    ChangeVolume,
    CreateVolume,
    RestoreVolume,
    Volume,
    VolumeAttachment,
    VolumePage,
    VolumeState,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, VolumeRef

router = APIRouter(prefix="/v1/volumes", tags=["volumes"])


@router.post(
    "",
    operation_id="createVolume",
    status_code=201,
    response_model=Volume,
    responses=failures(402, 404, 409),
    summary="Make a volume, empty or as a copy",
)
async def create(request: Request, body: CreateVolume, idempotency_key: IdempotencyKey = None) -> Response:
    desk, who = platform_of(request).artifacts.volumes, caller(request)
    wanted = Wanted(
        name=body.name, size_mb=body.size_mb, from_snapshot=body.from_snapshot, labels=body.labels
    )

    async def act(bind: Bind | None) -> Response:
        return _made(await desk.create(wanted, who, also=bind))

    async def recall(volume_id: str) -> Response | None:
        made = await desk.recall(volume_id, who)
        return None if made is None else _made(made)

    return await once_bound(request, act, recall=recall)


@router.get(
    "",
    operation_id="listVolumes",
    response_model=VolumePage,
    responses=failures(),
    summary="List volumes, newest first",
)
async def list_volumes(
    request: Request,
    state: Annotated[VolumeState | None, Query(description="Default: all but those that are gone.")] = None,
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    desk = platform_of(request).artifacts.volumes
    page = await desk.list(
        caller(request), state=None if state is None else State(state), cursor=cursor, limit=limit
    )
    attached = await desk.attachments(page.volumes)
    shown = [shown_volume(one, attached[one.id]) for one in page.volumes]
    return json_response(VolumePage.model_construct(volumes=shown, next_cursor=page.next_cursor))


@router.get(
    "/{volume}",
    operation_id="getVolume",
    response_model=Volume,
    responses=failures(404),
    summary="Look at a volume, by id or name",
)
async def get(request: Request, volume: VolumeRef) -> Response:
    found = await platform_of(request).artifacts.volumes.get(volume, caller(request))
    return await _shown(request, found)


@router.patch(
    "/{volume}",
    operation_id="changeVolume",
    response_model=Volume,
    responses=failures(402, 404, 409),
    summary="Make it larger or smaller, rename it, or label it",
)
async def change(request: Request, volume: VolumeRef, body: ChangeVolume) -> Response:
    changed = await platform_of(request).artifacts.volumes.change(
        volume, caller(request), name=body.name, labels=body.labels, size_mb=body.size_mb
    )
    return await _shown(request, changed)


@router.delete(
    "/{volume}",
    operation_id="dropVolume",
    response_model=Volume,
    responses=failures(404, 409, 428),
    summary="Drop a volume and all that is on it; dropped already is success",
)
async def drop(request: Request, volume: VolumeRef) -> Response:
    desk, who = platform_of(request).artifacts.volumes, caller(request)
    found = await desk.get(volume, who)
    is_confirmed = await confirm_locked(request, found, action="drop")
    dropped = await desk.drop(found.id, who, despite_lock=is_confirmed)
    return await _shown(request, dropped)


@router.post(
    "/{volume}/snapshots",
    operation_id="takeVolumeSnapshot",
    status_code=201,
    response_model=Snapshot,
    responses=failures(402, 404, 409),
    summary="Keep it as it is now; whoever writes to it goes on",
)
async def take(
    request: Request, volume: VolumeRef, body: TakeSnapshot, idempotency_key: IdempotencyKey = None
) -> Response:
    artifacts, who = platform_of(request).artifacts, caller(request)
    wanted = WantedSnapshot(name=body.name, ttl=body.ttl, labels=body.labels)

    async def act(bind: Bind | None) -> Response:
        return taken_snapshot(await artifacts.volumes.snapshot(volume, wanted, who, also=bind))

    async def recall(snapshot_id: str) -> Response | None:
        made = await artifacts.snapshots.recall(snapshot_id, who)
        return None if made is None else taken_snapshot(made)

    return await once_bound(request, act, recall=recall)


@router.post(
    "/{volume}/restore",
    operation_id="restoreVolume",
    response_model=Volume,
    responses=failures(404, 409, 428),
    summary="Put it back to what a snapshot of a volume has; what is on it now is lost",
)
async def restore(request: Request, volume: VolumeRef, body: RestoreVolume) -> Response:
    platform, who = platform_of(request), caller(request)
    desk = platform.artifacts.volumes
    found = await desk.get(volume, who)
    await note_use(platform, who, "snapshots", body.snapshot, "restore")
    is_confirmed = await confirm_locked(request, found, action="restore")
    restored = await desk.restore(found.id, body.snapshot, who, despite_lock=is_confirmed)
    return await _shown(request, restored)


@router.post(
    "/{volume}/lock",
    operation_id="lockVolume",
    response_model=Volume,
    responses=failures(404, 409),
    summary="From now on dropping and unlocking it need a second proof",
)
async def lock(request: Request, volume: VolumeRef) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.artifacts.volumes.get(volume, who)
    # Else nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return await _shown(request, await platform.artifacts.volumes.lock(found.id, who))


@router.post(
    "/{volume}/unlock",
    operation_id="unlockVolume",
    response_model=Volume,
    responses=failures(404, 409, 428),
    summary="Let it be dropped by a request alone again",
)
async def unlock(request: Request, volume: VolumeRef) -> Response:
    desk, who = platform_of(request).artifacts.volumes, caller(request)
    found = await desk.get(volume, who)
    await confirm_locked(request, found, action="unlock")
    unlocked = await desk.unlock(found.id, who)
    return await _shown(request, unlocked)


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
    desk = platform_of(request).artifacts.volumes
    attached = await desk.attachments([record])
    return json_response(shown_volume(record, attached[record.id], await desk.usage(record)))


def _made(record: records.Volume) -> Response:
    answer = json_response(shown_volume(record, ()), 201)
    answer.headers["location"] = f"/v1/volumes/{record.id}"
    return answer
