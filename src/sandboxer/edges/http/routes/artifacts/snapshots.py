"""Snapshots: keep a sandbox's disk, go back to it, fork from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.snapshots import records
from sandboxer.artifacts.snapshots.cloning import Batch
from sandboxer.artifacts.snapshots.desk import Wanted
from sandboxer.artifacts.snapshots.lifecycle import State
from sandboxer.artifacts.snapshots.lineage import flattened
from sandboxer.backends.contract import KeptSizes
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.failures import failures, inside
from sandboxer.edges.http.idempotency import Bind, BindOne, IdempotencyKey, once_bound, once_many
from sandboxer.edges.http.labelling import LabelFilter, labels_of
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.ids import is_volume_id
from sandboxer.sandboxes.locks import is_guarded
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.wire.problems import Problem
from sandboxer.wire.sandboxes import Resources, Sandbox
from sandboxer.wire.snapshots import (
    ChangeSnapshot,
    Clones,
    CloneSnapshot,
    FailedClone,
    Snapshot,
    SnapshotLine,
    SnapshotPage,
    SnapshotState,
    SnapshotTree,
    TakeSnapshot,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, SandboxId, SnapshotId, VolumeId

router = APIRouter(tags=["snapshots"])


@router.post(
    "/v1/sandboxes/{sandbox_id}/snapshots",
    operation_id="takeSnapshot",
    status_code=201,
    response_model=Snapshot,
    responses=inside(402),
    summary="Keep its disk as it is now; whatever runs goes on",
)
async def take(
    request: Request, sandbox_id: SandboxId, body: TakeSnapshot, idempotency_key: IdempotencyKey = None
) -> Response:
    desk, who = platform_of(request).artifacts.snapshots, caller(request)
    wanted = Wanted(name=body.name, ttl=body.ttl, labels=body.labels)

    async def act(bind: Bind | None) -> Response:
        return taken_snapshot(await desk.take(sandbox_id, wanted, who, also=bind))

    async def recall(snapshot_id: str) -> Response | None:
        made = await desk.recall(snapshot_id, who)
        return None if made is None else taken_snapshot(made)

    return await once_bound(request, act, recall=recall)


@router.get(
    "/v1/snapshots",
    operation_id="listSnapshots",
    response_model=SnapshotPage,
    responses=failures(),
    summary="List snapshots, newest first",
)
async def list_snapshots(
    request: Request,
    sandbox_id: Annotated[SandboxId | None, Query(description="Only those taken of this one.")] = None,
    volume_id: Annotated[VolumeId | None, Query(description="Only those taken of this volume.")] = None,
    state: Annotated[SnapshotState | None, Query(description="Default: all but those that are gone.")] = None,
    label: Annotated[
        list[LabelFilter], Query(max_length=16, description="`key=value`; all must match.")
    ] = [],  # noqa: B006
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    page = await platform_of(request).artifacts.snapshots.list(
        caller(request),
        sandbox_id=volume_id or sandbox_id,
        state=None if state is None else State(state),
        labels=labels_of(label),
        cursor=cursor,
        limit=limit,
    )
    shown = [shown_snapshot(record) for record in page.snapshots]
    return json_response(SnapshotPage.model_construct(snapshots=shown, next_cursor=page.next_cursor))


@router.get(
    "/v1/snapshots/tree",
    operation_id="getSnapshotTree",
    response_model=SnapshotTree,
    responses=failures(),
    summary="What came from what: snapshots, and the sandboxes and volumes that descend from them",
)
async def tree(request: Request) -> Response:
    artifacts, who = platform_of(request).artifacts, caller(request)
    grown = await artifacts.snapshots.tree(who, volumes=await artifacts.volumes.descent(who))
    lines = [
        SnapshotLine.model_construct(
            id=branch.snapshot.id,
            parent_id=branch.snapshot.parent_id if depth else None,
            depth=depth,
            name=branch.snapshot.name,
            state=branch.snapshot.state.value,
            **_source(branch.snapshot),
            size_bytes=branch.snapshot.size_bytes,
            created_at=branch.snapshot.created_at,
            locked_at=branch.snapshot.locked_at,
            sandbox_ids=list(branch.sandbox_ids),
            volume_ids=list(branch.volume_ids),
        )
        for depth, branch in flattened(grown)
    ]
    return json_response(SnapshotTree.model_construct(lines=lines))


@router.get(
    "/v1/snapshots/{snapshot_id}",
    operation_id="getSnapshot",
    response_model=Snapshot,
    responses=failures(404),
    summary="Look at a snapshot",
)
async def get(request: Request, snapshot_id: SnapshotId) -> Response:
    desk = platform_of(request).artifacts.snapshots
    found = await desk.get(snapshot_id, caller(request))
    return json_response(shown_snapshot(found, await desk.sizes(found)))


@router.patch(
    "/v1/snapshots/{snapshot_id}",
    operation_id="changeSnapshot",
    response_model=Snapshot,
    responses=failures(404, 409),
    summary="Name it, label it, or say when it may go",
)
async def change(request: Request, snapshot_id: SnapshotId, body: ChangeSnapshot) -> Response:
    changed = await platform_of(request).artifacts.snapshots.change(
        snapshot_id, caller(request), name=body.name, labels=body.labels, ttl=body.ttl
    )
    return json_response(shown_snapshot(changed))


@router.delete(
    "/v1/snapshots/{snapshot_id}",
    operation_id="dropSnapshot",
    response_model=Snapshot,
    responses=failures(404, 409, 428),
    summary="Drop a snapshot; dropped already is success, what was made from it stays",
)
async def drop(request: Request, snapshot_id: SnapshotId) -> Response:
    desk, who = platform_of(request).artifacts.snapshots, caller(request)
    found = await desk.get(snapshot_id, who)
    is_confirmed = await confirm_locked(request, found, action="drop")
    dropped = await desk.drop(snapshot_id, who, despite_lock=is_confirmed)
    return json_response(shown_snapshot(dropped))


@router.post(
    "/v1/snapshots/{snapshot_id}/restore",
    operation_id="restoreSnapshot",
    response_model=Sandbox,
    responses=inside(402, 428),
    summary="Put its sandbox's disk back to what it was; what runs ends, and starts anew",
)
async def restore(request: Request, snapshot_id: SnapshotId) -> Response:
    desk, who = platform_of(request).artifacts.snapshots, caller(request)
    found = await desk.get(snapshot_id, who)
    sandbox = await desk.source(found, who)
    is_confirmed = is_guarded(sandbox) and await confirm_locked(request, sandbox, action="restore")
    restored = await desk.restore(snapshot_id, who, despite_lock=is_confirmed)
    return json_response(answers.sandbox(restored))


@router.post(
    "/v1/snapshots/{snapshot_id}/clone",
    operation_id="cloneSnapshot",
    status_code=201,
    response_model=Clones,
    responses=inside(402),
    summary="New sandboxes that begin as it was, each a new machine",
)
async def clone(
    request: Request, snapshot_id: SnapshotId, body: CloneSnapshot, idempotency_key: IdempotencyKey = None
) -> Response:
    artifacts, who = platform_of(request).artifacts, caller(request)

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        asked = replace(_request(body), volumes=await mounts(request, body.volumes))
        wanted = await artifacts.cloning.request_for(snapshot_id, asked, who)
        await pass_gate(request, wanted.profile)
        batch = Batch(count=body.count, begun=begun, also=bind)
        made = await artifacts.cloning.clone(snapshot_id, wanted, who, batch)
        failed = [
            FailedClone.model_construct(number=number, problem=_problem(request, error))
            for number, error in made.failed.items()
        ]
        shown = [answers.sandbox(each) for each in made.sandboxes]
        left_out = [answers.attached_volume(one) for one in made.volumes_left_out]
        told = Clones.model_construct(sandboxes=shown, failed=failed, volumes_left_out=left_out)
        return json_response(told, 201)

    return await once_many(request, act)


@router.post(
    "/v1/snapshots/{snapshot_id}/lock",
    operation_id="lockSnapshot",
    response_model=Snapshot,
    responses=failures(404, 409),
    summary="From now on dropping and unlocking it need a second proof",
)
async def lock(request: Request, snapshot_id: SnapshotId) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.artifacts.snapshots.get(snapshot_id, who)
    # Else nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return json_response(shown_snapshot(await platform.artifacts.snapshots.lock(snapshot_id, who)))


@router.post(
    "/v1/snapshots/{snapshot_id}/unlock",
    operation_id="unlockSnapshot",
    response_model=Snapshot,
    responses=failures(404, 409, 428),
    summary="Let it be dropped by a request alone again",
)
async def unlock(request: Request, snapshot_id: SnapshotId) -> Response:
    desk, who = platform_of(request).artifacts.snapshots, caller(request)
    await confirm_locked(request, await desk.get(snapshot_id, who), action="unlock")
    unlocked = await desk.unlock(snapshot_id, who)
    return json_response(shown_snapshot(unlocked))


def shown_snapshot(record: records.Snapshot, sizes: KeptSizes | None = None) -> Snapshot:
    return Snapshot.model_construct(
        id=record.id,
        name=record.name,
        state=record.state.value,
        reason=record.reason,
        **_source(record),
        parent_id=record.parent_id,
        content=record.content.value,
        backend=record.backend,
        image=record.image,
        profile=record.profile,
        resources=Resources.model_construct(
            vcpus=record.resources.vcpus,
            memory_mb=record.resources.memory_mb,
            disk_mb=record.resources.disk_mb,
            pids=record.resources.pids,
        ),
        labels=dict(record.labels),
        size_bytes=record.size_bytes if sizes is None else sizes.referenced_bytes,
        size_is_exact=record.is_measured or sizes is not None,
        exclusive_bytes=None if sizes is None else sizes.exclusive_bytes,
        rate_msats_per_s=record.rate_msats if record.state is State.KEPT else 0,
        created_at=record.created_at,
        expires_at=record.expires_at,
        ended_at=record.ended_at,
        locked_at=record.locked_at,
        took_ms=dict(record.took_ms),
    )


def _source(record: records.Snapshot) -> dict[str, Any]:
    is_volume = is_volume_id(record.sandbox_id)
    return {
        "sandbox_id": None if is_volume else record.sandbox_id,
        "volume_id": record.sandbox_id if is_volume else None,
    }


def taken_snapshot(made: records.Snapshot) -> Response:
    answer = json_response(shown_snapshot(made), 201)
    answer.headers["location"] = f"/v1/snapshots/{made.id}"
    return answer


def _request(body: CloneSnapshot) -> CreateRequest:
    wanted = body.resources
    return CreateRequest(
        profile=body.profile,
        name=body.name,
        trust=body.trust,
        ttl=body.ttl,
        idle_timeout=body.idle_timeout,
        resources=WantedResources() if wanted is None else WantedResources(**wanted.model_dump()),
        env=body.env,
        labels=body.labels,
    )


def _problem(request: Request, error: SandboxerError) -> Problem:
    return Problem.model_validate(problems.document(error, problems.request_id_of(request.scope)))
