"""The operations on snapshots."""

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
from sandboxer.wire.operations.paths import SandboxPath, SnapshotPath
from sandboxer.wire.sandboxes import Sandbox
from sandboxer.wire.snapshots import (
    ChangeSnapshot,
    Clones,
    CloneSnapshot,
    Snapshot,
    SnapshotPage,
    SnapshotState,
    SnapshotTree,
    TakeSnapshot,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, LabelFilter, SandboxId, VolumeId


class ListSnapshotsQuery(Parameters):
    sandbox_id: Annotated[SandboxId | None, Field(description="Only those taken of this one.")] = None
    volume_id: Annotated[VolumeId | None, Field(description="Only those taken of this volume.")] = None
    state: Annotated[SnapshotState | None, Field(description="Default: all but those that are gone.")] = None
    label: Annotated[list[LabelFilter], Field(max_length=16, description="`key=value`; all must match.")] = (
        Field(default_factory=list)
    )
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


TAKE_SNAPSHOT = Operation(
    id="takeSnapshot",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/snapshots",
    noun="snapshots",
    summary="Keep its disk as it is now; whatever runs goes on",
    parameters=SandboxPath,
    body=Json(TakeSnapshot),
    answer=Answered(model=Snapshot, status=201),
    needs=needs(Scope.SANDBOXES_MANAGE),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.snapshots"),
)
LIST_SNAPSHOTS = Operation(
    id="listSnapshots",
    method="GET",
    path="/v1/snapshots",
    noun="snapshots",
    summary="List snapshots, newest first",
    query=ListSnapshotsQuery,
    answer=Answered(model=SnapshotPage),
    needs=needs(Scope.SANDBOXES_READ),
)
GET_SNAPSHOT_TREE = Operation(
    id="getSnapshotTree",
    method="GET",
    path="/v1/snapshots/tree",
    noun="snapshots",
    summary="What came from what: snapshots, and the sandboxes and volumes that descend from them",
    answer=Answered(model=SnapshotTree),
    needs=needs(Scope.SANDBOXES_READ),
)
GET_SNAPSHOT = Operation(
    id="getSnapshot",
    method="GET",
    path="/v1/snapshots/{snapshot_id}",
    noun="snapshots",
    summary="Look at a snapshot",
    parameters=SnapshotPath,
    answer=Answered(model=Snapshot),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
)
CHANGE_SNAPSHOT = Operation(
    id="changeSnapshot",
    method="PATCH",
    path="/v1/snapshots/{snapshot_id}",
    noun="snapshots",
    summary="Name it, label it, or say when it may go",
    parameters=SnapshotPath,
    body=Json(ChangeSnapshot),
    answer=Answered(model=Snapshot),
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="snapshot", action="snapshot.patch"),
)
DROP_SNAPSHOT = Operation(
    id="dropSnapshot",
    method="DELETE",
    path="/v1/snapshots/{snapshot_id}",
    noun="snapshots",
    summary="Drop a snapshot; dropped already is success, what was made from it stays",
    parameters=SnapshotPath,
    answer=Answered(model=Snapshot),
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="snapshot", action="snapshot.destroy"),
)
RESTORE_SNAPSHOT = Operation(
    id="restoreSnapshot",
    method="POST",
    path="/v1/snapshots/{snapshot_id}/restore",
    noun="snapshots",
    summary="Put its sandbox's disk back to what it was; what runs ends, and starts anew",
    parameters=SnapshotPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(402, 404, 409, 428, 502),
    operator_audit=OperatorAudit(thing="snapshot", action="snapshot.restore"),
)
CLONE_SNAPSHOT = Operation(
    id="cloneSnapshot",
    method="POST",
    path="/v1/snapshots/{snapshot_id}/clone",
    noun="snapshots",
    summary="New sandboxes that begin as it was, each a new machine",
    parameters=SnapshotPath,
    body=Json(CloneSnapshot),
    answer=Answered(model=Clones, status=201),
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.MANY,
    patience_s=180.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="snapshot", action="snapshot.clone"),
)
LOCK_SNAPSHOT = Operation(
    id="lockSnapshot",
    method="POST",
    path="/v1/snapshots/{snapshot_id}/lock",
    noun="snapshots",
    summary="From now on dropping and unlocking it need a second proof",
    parameters=SnapshotPath,
    answer=Answered(model=Snapshot),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="snapshot", action="snapshot.lock"),
)
UNLOCK_SNAPSHOT = Operation(
    id="unlockSnapshot",
    method="POST",
    path="/v1/snapshots/{snapshot_id}/unlock",
    noun="snapshots",
    summary="Let it be dropped by a request alone again",
    parameters=SnapshotPath,
    answer=Answered(model=Snapshot),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="snapshot", action="snapshot.unlock"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    TAKE_SNAPSHOT,
    LIST_SNAPSHOTS,
    GET_SNAPSHOT_TREE,
    GET_SNAPSHOT,
    CHANGE_SNAPSHOT,
    DROP_SNAPSHOT,
    RESTORE_SNAPSHOT,
    CLONE_SNAPSHOT,
    LOCK_SNAPSHOT,
    UNLOCK_SNAPSHOT,
)
