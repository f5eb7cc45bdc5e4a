"""The operations on volumes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Idempotency,
    Json,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import VolumePath
from sandboxer.wire.snapshots import Snapshot, TakeSnapshot
from sandboxer.wire.volumes import ChangeVolume, CreateVolume, RestoreVolume, Volume, VolumePage, VolumeState
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor


class ListVolumesQuery(Parameters):
    state: Annotated[VolumeState | None, Field(description="Default: all but those that are gone.")] = None
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


CREATE_VOLUME = Operation(
    id="createVolume",
    method="POST",
    path="/v1/volumes",
    noun="volumes",
    summary="Make a volume, empty or as a copy",
    body=Json(CreateVolume),
    answer=Answered(model=Volume, status=201),
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409),
)
LIST_VOLUMES = Operation(
    id="listVolumes",
    method="GET",
    path="/v1/volumes",
    noun="volumes",
    summary="List volumes, newest first",
    query=ListVolumesQuery,
    answer=Answered(model=VolumePage),
    needs=needs(Scope.SANDBOXES_READ),
)
GET_VOLUME = Operation(
    id="getVolume",
    method="GET",
    path="/v1/volumes/{volume}",
    noun="volumes",
    summary="Look at a volume, by id or name",
    parameters=VolumePath,
    answer=Answered(model=Volume),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
)
CHANGE_VOLUME = Operation(
    id="changeVolume",
    method="PATCH",
    path="/v1/volumes/{volume}",
    noun="volumes",
    summary="Make it larger or smaller, rename it, or label it",
    parameters=VolumePath,
    body=Json(ChangeVolume),
    answer=Answered(model=Volume),
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(402, 404, 409),
    operator_audit=OperatorAudit(thing="volume", action="volume.patch"),
)
DROP_VOLUME = Operation(
    id="dropVolume",
    method="DELETE",
    path="/v1/volumes/{volume}",
    noun="volumes",
    summary="Drop a volume and all that is on it; dropped already is success",
    parameters=VolumePath,
    answer=Answered(model=Volume),
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    patience_s=180.0,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="volume", action="volume.destroy"),
)
TAKE_VOLUME_SNAPSHOT = Operation(
    id="takeVolumeSnapshot",
    method="POST",
    path="/v1/volumes/{volume}/snapshots",
    noun="volumes",
    summary="Keep it as it is now; whoever writes to it goes on",
    parameters=VolumePath,
    body=Json(TakeSnapshot),
    answer=Answered(model=Snapshot, status=201),
    needs=needs(Scope.SANDBOXES_MANAGE),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409),
    operator_audit=OperatorAudit(thing="volume", action="volume.snapshots"),
)
RESTORE_VOLUME = Operation(
    id="restoreVolume",
    method="POST",
    path="/v1/volumes/{volume}/restore",
    noun="volumes",
    summary="Put it back to what a snapshot of a volume has; what is on it now is lost",
    parameters=VolumePath,
    body=Json(RestoreVolume),
    answer=Answered(model=Volume),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="volume", action="volume.restore"),
)
LOCK_VOLUME = Operation(
    id="lockVolume",
    method="POST",
    path="/v1/volumes/{volume}/lock",
    noun="volumes",
    summary="From now on dropping and unlocking it need a second proof",
    parameters=VolumePath,
    answer=Answered(model=Volume),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="volume", action="volume.lock"),
)
UNLOCK_VOLUME = Operation(
    id="unlockVolume",
    method="POST",
    path="/v1/volumes/{volume}/unlock",
    noun="volumes",
    summary="Let it be dropped by a request alone again",
    parameters=VolumePath,
    answer=Answered(model=Volume),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="volume", action="volume.unlock"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_VOLUME,
    LIST_VOLUMES,
    GET_VOLUME,
    CHANGE_VOLUME,
    DROP_VOLUME,
    TAKE_VOLUME_SNAPSHOT,
    RESTORE_VOLUME,
    LOCK_VOLUME,
    UNLOCK_VOLUME,
)
