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
    Empty,
    Json,
    NoParameters,
    Operation,
    Parameters,
    Stream,
)
from sandboxer.wire.operations.paths import GrantPath, ImagePath
from sandboxer.wire.operations.terms import Access, Idempotency, RateClass, Scope, Visit, needs
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
    body=Empty(),
    answer=Bytes(media_type="application/x-tar", words="The archive."),
    access=Access.SIGNED,
    needs=needs(Scope.FILES_READ),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="image", action="image.export"),
)
IMPORT_IMAGE = Operation(
    id="importImage",
    method="POST",
    path="/v1/images/import",
    noun="images",
    summary="Publish an OCI layout or a Docker archive (`docker save`, `podman save`), sent as one tar",
    parameters=NoParameters,
    query=ImportImageQuery,
    body=Stream("application/x-tar"),
    answer=Answered(model=PublishedImage, status=201),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_CREATE),
    rate=RateClass.API,
    idempotency=Idempotency.BOUND,
    failures=(402, 404, 409, 502),
)
PUBLISH_IMAGE = Operation(
    id="publishImage",
    method="POST",
    path="/v1/images",
    noun="images",
    summary="Publish a snapshot, or a sandbox's or a service's disk as it is now",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(PublishImage),
    answer=Answered(model=PublishedImage, status=201),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    idempotency=Idempotency.PLAIN,
    failures=(402, 404, 409, 502),
)
GET_IMAGE = Operation(
    id="getImage",
    method="GET",
    path="/v1/images/{image_id}",
    noun="images",
    summary="Look at a published image",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_READ),
    rate=RateClass.API,
    failures=(404,),
)
REMOVE_IMAGE = Operation(
    id="removeImage",
    method="DELETE",
    path="/v1/images/{image_id}",
    noun="images",
    summary="Remove an image; gone already is success, what was made from it stays",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409, 428),
    visit=Visit(thing="image", action="image.destroy"),
)
VERIFY_IMAGE = Operation(
    id="verifyImage",
    method="POST",
    path="/v1/images/{image_id}/verify",
    noun="images",
    summary="Read every file of it and compare the digest; one that was altered is refused from then on",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="image", action="image.verify"),
)
CLONE_IMAGE = Operation(
    id="cloneImage",
    method="POST",
    path="/v1/images/{image_id}/clone",
    noun="images",
    summary="A copy in your own account, which outlives the original",
    parameters=ImagePath,
    query=NoParameters,
    body=Json(CloneImage),
    answer=Answered(model=PublishedImage, status=201),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    idempotency=Idempotency.PLAIN,
    failures=(402, 404, 409, 502),
    visit=Visit(thing="image", action="image.clone"),
)
SPAWN_IMAGE = Operation(
    id="spawnImage",
    method="POST",
    path="/v1/images/{image_id}/spawn",
    noun="images",
    summary="New sandboxes that begin as the image, each a new machine",
    parameters=ImagePath,
    query=NoParameters,
    body=Json(SpawnImage),
    answer=Answered(model=Clones, status=201),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_CREATE),
    rate=RateClass.API,
    idempotency=Idempotency.MANY,
    failures=(402, 404, 409, 502),
    visit=Visit(thing="image", action="image.spawn"),
)
CHANGE_IMAGE = Operation(
    id="changeImage",
    method="PATCH",
    path="/v1/images/{image_id}",
    noun="images",
    summary="Name it, describe it, or say who may see it; refused while something in it looks like a secret",
    parameters=ImagePath,
    query=NoParameters,
    body=Json(ChangeImage),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409),
    visit=Visit(thing="image", action="image.patch"),
)
LIST_IMAGE_GRANTS = Operation(
    id="listImageGrants",
    method="GET",
    path="/v1/images/{image_id}/grants",
    noun="images",
    summary="Who may use it beside its owner",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=ImageGrants),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_READ),
    rate=RateClass.API,
    failures=(404,),
    visit=Visit(thing="image", action="image.grants"),
)
GRANT_IMAGE = Operation(
    id="grantImage",
    method="POST",
    path="/v1/images/{image_id}/grants",
    noun="images",
    summary="Let an account use it",
    parameters=ImagePath,
    query=NoParameters,
    body=Json(GrantImage),
    answer=Answered(model=ImageGrants),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409),
    visit=Visit(thing="image", action="image.grants"),
)
REVOKE_IMAGE = Operation(
    id="revokeImage",
    method="DELETE",
    path="/v1/images/{image_id}/grants/{account}",
    noun="images",
    summary="Take that back; what was made from it stays",
    parameters=GrantPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=ImageGrants),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409),
    visit=Visit(thing="image", action="image.grants"),
)
TRANSFER_IMAGE = Operation(
    id="transferImage",
    method="POST",
    path="/v1/images/{image_id}/transfer",
    noun="images",
    summary="Offer it to another account, which accepts it and pays for it from then on",
    parameters=ImagePath,
    query=NoParameters,
    body=Json(OfferImage),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409),
    visit=Visit(thing="image", action="image.transfer"),
)
ACCEPT_IMAGE = Operation(
    id="acceptImage",
    method="POST",
    path="/v1/images/{image_id}/accept",
    noun="images",
    summary="Accept one that was offered to you",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(402, 404, 409),
    visit=Visit(thing="image", action="image.accept"),
)
LOCK_IMAGE = Operation(
    id="lockImage",
    method="POST",
    path="/v1/images/{image_id}/lock",
    noun="images",
    summary="From now on removing and unlocking it need a second proof",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409),
    visit=Visit(thing="image", action="image.lock"),
)
UNLOCK_IMAGE = Operation(
    id="unlockImage",
    method="POST",
    path="/v1/images/{image_id}/unlock",
    noun="images",
    summary="Let it be removed by a request alone again",
    parameters=ImagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=PublishedImage),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_MANAGE),
    rate=RateClass.API,
    failures=(404, 409, 428),
    visit=Visit(thing="image", action="image.unlock"),
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
