"""The operations on images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.images import (
    ChangeImage,
    CloneImage,
    Description,
    GrantImage,
    ImageGrants,
    OfferImage,
    PublishedImage,
    PublishImage,
    SpawnImage,
    Visibility,
)
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Bytes,
    Idempotency,
    Json,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    Stream,
    needs,
)
from sandboxer.wire.operations.paths import GrantPath, ImagePath
from sandboxer.wire.sandboxes import ProfileId
from sandboxer.wire.snapshots import Clones
from sandboxer.wire.words import Name


class ExportImageQuery(Parameters):
    format: Annotated[Literal["oci", "docker"], Field(description="Form of the archive.")] = "oci"


class ImportImageQuery(Parameters):
    name: Name
    description: Description = ""
    visibility: Visibility = "private"
    clean: Annotated[bool, Field(description="Leave out files that look like secrets.")] = False
    profile: Annotated[ProfileId | None, Field(description="What sandboxes of it are made as.")] = None


EXPORT_IMAGE = Operation(
    id="exportImage",
    method="GET",
    path="/v1/images/{image_id}/export",
    noun="images",
    summary="The image as one tar: an OCI layout, or what `docker load` and `podman load` read",
    parameters=ImagePath,
    query=ExportImageQuery,
    answer=Bytes(media_type="application/x-tar", words="The archive."),
    needs=needs(Scope.FILES_READ),
    patience_s=900.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="image", action="image.export"),
)
IMPORT_IMAGE = Operation(
    id="importImage",
    method="POST",
    path="/v1/images/import",
    noun="images",
    summary="Publish an OCI layout or a Docker archive (`docker save`, `podman save`), sent as one tar",
    query=ImportImageQuery,
    body=Stream("application/x-tar"),
    answer=Answered(model=PublishedImage, status=201),
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.BOUND,
    patience_s=5400.0,
    failures=(402, 404, 409, 502),
)
PUBLISH_IMAGE = Operation(
    id="publishImage",
    method="POST",
    path="/v1/images",
    noun="images",
    summary="Publish a snapshot, or a sandbox's or a service's disk as it is now",
    body=Json(PublishImage),
    answer=Answered(model=PublishedImage, status=201),
    needs=needs(Scope.SANDBOXES_MANAGE),
    idempotency=Idempotency.PLAIN,
    patience_s=900.0,
    failures=(402, 404, 409, 502),
)
GET_IMAGE = Operation(
    id="getImage",
    method="GET",
    path="/v1/images/{image_id}",
    noun="images",
    summary="Look at a published image",
    parameters=ImagePath,
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
)
REMOVE_IMAGE = Operation(
    id="removeImage",
    method="DELETE",
    path="/v1/images/{image_id}",
    noun="images",
    summary="Remove an image; gone already is success, what was made from it stays",
    parameters=ImagePath,
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="image", action="image.destroy"),
)
VERIFY_IMAGE = Operation(
    id="verifyImage",
    method="POST",
    path="/v1/images/{image_id}/verify",
    noun="images",
    summary="Read every file of it and compare the digest; one that was altered is refused from then on",
    parameters=ImagePath,
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=900.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="image", action="image.verify"),
)
CLONE_IMAGE = Operation(
    id="cloneImage",
    method="POST",
    path="/v1/images/{image_id}/clone",
    noun="images",
    summary="A copy in your own account, which outlives the original",
    parameters=ImagePath,
    body=Json(CloneImage),
    answer=Answered(model=PublishedImage, status=201),
    needs=needs(Scope.SANDBOXES_MANAGE),
    idempotency=Idempotency.PLAIN,
    patience_s=900.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="image", action="image.clone"),
)
SPAWN_IMAGE = Operation(
    id="spawnImage",
    method="POST",
    path="/v1/images/{image_id}/spawn",
    noun="images",
    summary="New sandboxes that begin as the image, each a new machine",
    parameters=ImagePath,
    body=Json(SpawnImage),
    answer=Answered(model=Clones, status=201),
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.MANY,
    patience_s=900.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="image", action="image.spawn"),
)
CHANGE_IMAGE = Operation(
    id="changeImage",
    method="PATCH",
    path="/v1/images/{image_id}",
    noun="images",
    summary="Name it, describe it, or say who may see it; refused while something in it looks like a secret",
    parameters=ImagePath,
    body=Json(ChangeImage),
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="image", action="image.patch"),
)
LIST_IMAGE_GRANTS = Operation(
    id="listImageGrants",
    method="GET",
    path="/v1/images/{image_id}/grants",
    noun="images",
    summary="Who may use it beside its owner",
    parameters=ImagePath,
    answer=Answered(model=ImageGrants),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="image", action="image.grants"),
)
GRANT_IMAGE = Operation(
    id="grantImage",
    method="POST",
    path="/v1/images/{image_id}/grants",
    noun="images",
    summary="Let an account use it",
    parameters=ImagePath,
    body=Json(GrantImage),
    answer=Answered(model=ImageGrants),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="image", action="image.grants"),
)
REVOKE_IMAGE = Operation(
    id="revokeImage",
    method="DELETE",
    path="/v1/images/{image_id}/grants/{account}",
    noun="images",
    summary="Take that back; what was made from it stays",
    parameters=GrantPath,
    answer=Answered(model=ImageGrants),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="image", action="image.grants"),
)
TRANSFER_IMAGE = Operation(
    id="transferImage",
    method="POST",
    path="/v1/images/{image_id}/transfer",
    noun="images",
    summary="Offer it to another account, which accepts it and pays for it from then on",
    parameters=ImagePath,
    body=Json(OfferImage),
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="image", action="image.transfer"),
)
ACCEPT_IMAGE = Operation(
    id="acceptImage",
    method="POST",
    path="/v1/images/{image_id}/accept",
    noun="images",
    summary="Accept one that was offered to you",
    parameters=ImagePath,
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=900.0,
    failures=(402, 404, 409),
    operator_audit=OperatorAudit(thing="image", action="image.accept"),
)
LOCK_IMAGE = Operation(
    id="lockImage",
    method="POST",
    path="/v1/images/{image_id}/lock",
    noun="images",
    summary="From now on removing and unlocking it need a second proof",
    parameters=ImagePath,
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=900.0,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="image", action="image.lock"),
)
UNLOCK_IMAGE = Operation(
    id="unlockImage",
    method="POST",
    path="/v1/images/{image_id}/unlock",
    noun="images",
    summary="Let it be removed by a request alone again",
    parameters=ImagePath,
    answer=Answered(model=PublishedImage),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=900.0,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="image", action="image.unlock"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    EXPORT_IMAGE,
    IMPORT_IMAGE,
    PUBLISH_IMAGE,
    GET_IMAGE,
    REMOVE_IMAGE,
    VERIFY_IMAGE,
    CLONE_IMAGE,
    SPAWN_IMAGE,
    CHANGE_IMAGE,
    LIST_IMAGE_GRANTS,
    GRANT_IMAGE,
    REVOKE_IMAGE,
    TRANSFER_IMAGE,
    ACCEPT_IMAGE,
    LOCK_IMAGE,
    UNLOCK_IMAGE,
)
