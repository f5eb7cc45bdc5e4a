"""The operations on snapshots, volumes and images."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.accounts import AccountId
from sandboxer.wire.images import (
    ChangeImage,
    CloneImage,
    Description,
    GrantImage,
    ImageGrants,
    OfferImage,
    PublishedImage,
    PublishImage,
    PullImage,
    SpawnImage,
    Visibility,
)
from sandboxer.wire.operations.declaration import (
    AnsweredOrEvents,
    Bytes,
    Group,
    Idempotency,
    Offer,
    Parameters,
    Scope,
    Stream,
    Through,
    Tool,
    WayOut,
    created,
    needs,
)
from sandboxer.wire.operations.sandboxes import SANDBOX
from sandboxer.wire.sandboxes import ProfileId, Sandbox
from sandboxer.wire.snapshots import (
    ChangeSnapshot,
    Clones,
    CloneSnapshot,
    Snapshot,
    SnapshotPage,
    SnapshotState,
    SnapshotTree,
    TakeSnapshot,
    TakeVolumeSnapshot,
)
from sandboxer.wire.volumes import ChangeVolume, CreateVolume, RestoreVolume, Volume, VolumePage, VolumeState
from sandboxer.wire.words import (
    PAGE_LIMIT_DEFAULT,
    Cursor,
    ImageRef,
    LabelFilter,
    Name,
    PageLimit,
    SandboxRef,
    SnapshotRef,
    VolumeRef,
)


class SnapshotPath(Parameters):
    snapshot_id: SnapshotRef


class VolumePath(Parameters):
    volume: VolumeRef


class ImagePath(Parameters):
    image_id: ImageRef


class GrantPath(ImagePath):
    account: AccountId


class ListSnapshotsQuery(Parameters):
    sandbox_id: Annotated[SandboxRef | None, Field(description="Only those taken of this one.")] = None
    volume_id: Annotated[VolumeRef | None, Field(description="Only those taken of this volume.")] = None
    state: Annotated[SnapshotState | None, Field(description="Default: all but those that are gone.")] = None
    label: Annotated[list[LabelFilter], Field(max_length=16, description="`key=value`; all must match.")] = (
        Field(default_factory=list)
    )
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


_SNAPSHOTS = Group(noun="snapshots", needs=needs(Scope.SANDBOXES_MANAGE), reads=needs(Scope.SANDBOXES_READ))
_SNAPSHOT = _SNAPSHOTS.below("/v1/snapshots/{snapshot_id}", SnapshotPath, audited="snapshot")
TAKE_SNAPSHOT = replace(SANDBOX, noun="snapshots").operation(
    "takeSnapshot",
    "POST /snapshots",
    "Take a snapshot of a sandbox's disk, or of what runs too; whatever runs goes on",
    created(Snapshot),
    body=TakeSnapshot,
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 409, 502),
    tools=(
        Tool("createSnapshot", offer=Offer.CORE),
        Tool(
            "createSessionSnapshot",
            through=Through(operation="getSession", finds="sandbox_id"),
            summary="Take a snapshot of a session's disk; whatever runs goes on",
        ),
        Tool(
            "createServiceSnapshot",
            through=Through(operation="getService", finds="sandbox_id"),
            summary="Take a snapshot of a service's disk; whatever runs goes on",
        ),
    ),
)
LIST_SNAPSHOTS = _SNAPSHOTS.operation(
    "listSnapshots",
    "GET /v1/snapshots",
    "List snapshots, newest first",
    SnapshotPage,
    query=ListSnapshotsQuery,
    tools=(Tool(),),
)
GET_SNAPSHOT_TREE = _SNAPSHOTS.operation(
    "getSnapshotTree",
    "GET /v1/snapshots/tree",
    "Show what came from what: snapshots, and the sandboxes and volumes made from them",
    SnapshotTree,
)
GET_SNAPSHOT = _SNAPSHOT.operation(
    "getSnapshot",
    "GET",
    "Show a snapshot",
    Snapshot,
    tools=(Tool(),),
)
CHANGE_SNAPSHOT = _SNAPSHOT.operation(
    "changeSnapshot",
    "PATCH",
    "Change a snapshot's name, labels, or how long it is kept",
    Snapshot,
    body=ChangeSnapshot,
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(409,),
)
DROP_SNAPSHOT = _SNAPSHOT.operation(
    "dropSnapshot",
    "DELETE",
    "Delete a snapshot; deleted already is success, what was made from it stays",
    Snapshot,
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    failures=(409, 428),
    tools=(Tool("deleteSnapshot"),),
)
RESTORE_SNAPSHOT = _SNAPSHOT.operation(
    "restoreSnapshot",
    "POST /restore",
    "Put the sandbox back to a snapshot; processes end, and it starts again or goes on as it was kept",
    Sandbox,
    patience_s=180.0,
    failures=(402, 409, 428, 502),
    is_lossy=True,
    tools=(
        Tool(),
        Tool("restoreSession", summary="Put a session's disk back to a snapshot; its variables are lost"),
    ),
)
CLONE_SNAPSHOT = _SNAPSHOT.operation(
    "cloneSnapshot",
    "POST /clone",
    "Create sandboxes from a snapshot",
    created(Clones),
    body=CloneSnapshot,
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.MANY,
    patience_s=180.0,
    failures=(402, 409, 502),
    tools=(Tool(),),
)
LOCK_SNAPSHOT = _SNAPSHOT.operation(
    "lockSnapshot",
    "POST /lock",
    "Lock a snapshot: deleting and unlocking it then need a second proof",
    Snapshot,
    failures=(409,),
    tools=(Tool(),),
)
UNLOCK_SNAPSHOT = _SNAPSHOT.operation(
    "unlockSnapshot",
    "POST /unlock",
    "Unlock a snapshot",
    Snapshot,
    failures=(409, 428),
    tools=(Tool(),),
)


class ListVolumesQuery(Parameters):
    state: Annotated[VolumeState | None, Field(description="Default: all but those that are gone.")] = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


_VOLUMES = replace(_SNAPSHOTS, noun="volumes")
_VOLUME = _VOLUMES.below("/v1/volumes/{volume}", VolumePath, audited="volume")
CREATE_VOLUME = _VOLUMES.operation(
    "createVolume",
    "POST /v1/volumes",
    "Create a volume, empty or as a copy",
    created(Volume),
    body=CreateVolume,
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409),
    tools=(Tool(),),
)
LIST_VOLUMES = _VOLUMES.operation(
    "listVolumes",
    "GET /v1/volumes",
    "List volumes, newest first",
    VolumePage,
    query=ListVolumesQuery,
    tools=(Tool(),),
)
GET_VOLUME = _VOLUME.operation("getVolume", "GET", "Show a volume, by id or name", Volume)
CHANGE_VOLUME = _VOLUME.operation(
    "changeVolume",
    "PATCH",
    "Change a volume's size, name or labels",
    Volume,
    body=ChangeVolume,
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(402, 409),
)
DROP_VOLUME = _VOLUME.operation(
    "dropVolume",
    "DELETE",
    "Delete a volume and all that is on it; deleted already is success",
    Volume,
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    patience_s=180.0,
    failures=(409, 428),
)
TAKE_VOLUME_SNAPSHOT = _VOLUME.operation(
    "takeVolumeSnapshot",
    "POST /snapshots",
    "Take a snapshot of a volume; whoever writes to it goes on",
    created(Snapshot),
    body=TakeVolumeSnapshot,
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 409),
)
RESTORE_VOLUME = _VOLUME.operation(
    "restoreVolume",
    "POST /restore",
    "Put a volume back to a snapshot; what is on it now is lost",
    Volume,
    body=RestoreVolume,
    patience_s=180.0,
    failures=(409, 428),
    is_lossy=True,
)
LOCK_VOLUME = _VOLUME.operation(
    "lockVolume",
    "POST /lock",
    "Lock a volume: deleting and unlocking it then need a second proof",
    Volume,
    failures=(409,),
)
UNLOCK_VOLUME = _VOLUME.operation(
    "unlockVolume", "POST /unlock", "Unlock a volume", Volume, failures=(409, 428)
)


class ExportImageQuery(Parameters):
    format: Annotated[Literal["oci", "docker"], Field(description="Form of the archive.")] = "oci"


class ImportImageQuery(Parameters):
    name: Name
    description: Description = ""
    visibility: Visibility = "private"
    clean: Annotated[bool, Field(description="Leave out files that look like secrets.")] = False
    profile: Annotated[ProfileId | None, Field(description="What sandboxes of it are made as.")] = None


class BuildImageQuery(ImportImageQuery):
    file: Annotated[
        str, Field(min_length=1, max_length=4096, description="The Dockerfile, by its path in what is sent.")
    ] = "Dockerfile"
    target: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$", description="A stage of it.")] = (
        None
    )
    arg: Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*=", max_length=32768)]],
        Field(max_length=64, description="`NAME=VALUE` for its `ARG`s."),
    ] = Field(default_factory=list)
    start: Annotated[
        str | None,
        Field(max_length=4096, description="What to start in a sandbox of it; kept as a label."),
    ] = None
    ready: Annotated[
        str | None,
        Field(max_length=4096, description="What succeeds once that has started; kept as a label."),
    ] = None
    cache: Annotated[bool, Field(description="Begin where your last build differs.")] = True


_IMAGES = replace(_SNAPSHOTS, noun="images")
_IMAGE = _IMAGES.below("/v1/images/{image_id}", ImagePath, audited="image")
# All of its files may be read, however many they are.
_IMAGE_SLOW = replace(_IMAGE, is_repeatable=True, patience_s=900.0, failures=(404, 409))
EXPORT_IMAGE = _IMAGE.operation(
    "exportImage",
    "GET /export",
    "Download an image as one tar: an OCI layout, or what `docker load` and `podman load` read",
    Bytes(media_type="application/x-tar", words="The archive."),
    query=ExportImageQuery,
    needs=needs(Scope.FILES_READ),
    patience_s=900.0,
    failures=(409, 502),
)
IMPORT_IMAGE = _IMAGES.operation(
    "importImage",
    "POST /v1/images/import",
    "Publish an OCI layout or a Docker archive (`docker save`, `podman save`), sent as one tar",
    created(PublishedImage),
    query=ImportImageQuery,
    body=Stream("application/x-tar"),
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.BOUND,
    patience_s=5400.0,
    failures=(402, 404, 409, 502),
    way_out=WayOut(fields=("visibility",)),
)
_MADE = AnsweredOrEvents(
    model=PublishedImage,
    words="The image; or, streamed: `output` for what the builder says, then `done` or `error`.",
)
_MAKING = replace(
    _IMAGES,
    needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC),
    patience_s=5400.0,
    failures=(402, 404, 409, 413, 502),
)
BUILD_IMAGE = _MAKING.operation(
    "buildImage",
    "POST /v1/images/build",
    "Build a Dockerfile and publish what comes of it; its context is sent as one tar",
    _MADE,
    query=BuildImageQuery,
    body=Stream("application/x-tar"),
    way_out=WayOut(),
)
PULL_IMAGE = _MAKING.operation(
    "pullImage",
    "POST /v1/images/pull",
    "Fetch an image from a registry and publish it; one that is there already is not fetched again",
    _MADE,
    body=PullImage,
    way_out=WayOut(),
)
PUBLISH_IMAGE = _IMAGES.operation(
    "publishImage",
    "POST /v1/images",
    "Publish a snapshot, or a sandbox's or a service's disk as it is now",
    created(PublishedImage),
    body=PublishImage,
    idempotency=Idempotency.PLAIN,
    patience_s=900.0,
    failures=(402, 404, 409, 502),
    way_out=WayOut(fields=("visibility",)),
    tools=(Tool(),),
)
GET_IMAGE = _IMAGE.operation(
    "getImage",
    "GET",
    "Show a published image",
    PublishedImage,
    tools=(Tool(),),
)
REMOVE_IMAGE = _IMAGE.operation(
    "removeImage",
    "DELETE",
    "Delete an image; deleted already is success, what was made from it stays",
    PublishedImage,
    is_repeatable=True,
    failures=(409, 428),
    tools=(Tool("deleteImage"),),
)
VERIFY_IMAGE = _IMAGE_SLOW.operation(
    "verifyImage",
    "POST /verify",
    "Check an image's files against its digest; one that was altered is refused from then on",
    PublishedImage,
    failures=(502,),
)
CLONE_IMAGE = _IMAGE.operation(
    "cloneImage",
    "POST /clone",
    "Copy an image into your own account; the copy outlives the original",
    created(PublishedImage),
    body=CloneImage,
    idempotency=Idempotency.PLAIN,
    patience_s=900.0,
    failures=(402, 409, 502),
)
SPAWN_IMAGE = _IMAGE.operation(
    "spawnImage",
    "POST /spawn",
    "Create sandboxes from an image",
    created(Clones),
    body=SpawnImage,
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.MANY,
    patience_s=900.0,
    failures=(402, 409, 502),
    tools=(Tool("spawnFromImage"),),
)
CHANGE_IMAGE = _IMAGE.operation(
    "changeImage",
    "PATCH",
    "Change an image's name, description or visibility; private while a file in it looks like a secret",
    PublishedImage,
    body=ChangeImage,
    failures=(409,),
    way_out=WayOut(fields=("visibility",)),
    tools=(Tool("setImageVisibility"),),
)
LIST_IMAGE_GRANTS = _IMAGE.operation(
    "listImageGrants",
    "GET /grants",
    "List the accounts that may use an image beside its owner",
    ImageGrants,
    tools=(Tool("getImageTrustedKeys"),),
)
GRANT_IMAGE = _IMAGE.operation(
    "grantImage",
    "POST /grants",
    "Let an account use an image",
    ImageGrants,
    body=GrantImage,
    is_repeatable=True,
    failures=(409,),
    way_out=WayOut(),
    tools=(Tool("grantImageAccess"),),
)
REVOKE_IMAGE = _IMAGE.below("/grants/{account}", GrantPath).operation(
    "revokeImage",
    "DELETE",
    "Let an account use an image no more; what was made from it stays",
    ImageGrants,
    is_repeatable=True,
    failures=(409,),
    tools=(Tool("revokeImageAccess"),),
)
TRANSFER_IMAGE = _IMAGE.operation(
    "transferImage",
    "POST /transfer",
    "Offer an image to another account, which accepts it and pays for it from then on",
    PublishedImage,
    body=OfferImage,
    is_repeatable=True,
    failures=(409,),
    way_out=WayOut(),
    tools=(Tool(),),
)
ACCEPT_IMAGE = _IMAGE_SLOW.operation(
    "acceptImage", "POST /accept", "Accept an image that was offered to you", PublishedImage, failures=(402,)
)
LOCK_IMAGE = _IMAGE_SLOW.operation(
    "lockImage",
    "POST /lock",
    "Lock an image: deleting and unlocking it then need a second proof",
    PublishedImage,
    tools=(Tool(),),
)
UNLOCK_IMAGE = _IMAGE_SLOW.operation(
    "unlockImage",
    "POST /unlock",
    "Unlock an image",
    PublishedImage,
    failures=(428,),
    tools=(Tool(),),
)
