"""Whom a published image is shared with, and whose it is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.policy import is_theirs
from sandboxer.artifacts.images.published.records import Visibility
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm_locked
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.accounts import AccountId
from sandboxer.wire.images import ChangeImage, GrantImage, ImageGrants, OfferImage, PublishedImage
from sandboxer.wire.words import ImageId

router = APIRouter(prefix="/v1/images/{image_id}", tags=["images"])


@router.patch(
    "",
    operation_id="changeImage",
    response_model=PublishedImage,
    responses=failures(404, 409),
    summary="Name it, describe it, or say who may see it; refused while something in it looks like a secret",
)
async def change(request: Request, image_id: ImageId, body: ChangeImage) -> Response:
    changed = await platform_of(request).artifacts.image_sharing.change(
        image_id,
        caller(request),
        name=body.name,
        description=body.description,
        visibility=None if body.visibility is None else Visibility(body.visibility),
    )
    return _shown(request, changed)


@router.get(
    "/grants",
    operation_id="listImageGrants",
    response_model=ImageGrants,
    responses=failures(404),
    summary="Who may use it beside its owner",
)
async def grants(request: Request, image_id: ImageId) -> Response:
    found = await platform_of(request).artifacts.image_sharing.grants(image_id, caller(request))
    return json_response(ImageGrants(accounts=found))


@router.post(
    "/grants",
    operation_id="grantImage",
    response_model=ImageGrants,
    responses=failures(404, 409),
    summary="Let an account use it",
)
async def grant(request: Request, image_id: ImageId, body: GrantImage) -> Response:
    sharing = platform_of(request).artifacts.image_sharing
    return json_response(ImageGrants(accounts=await sharing.grant(image_id, body.account, caller(request))))


@router.delete(
    "/grants/{account}",
    operation_id="revokeImage",
    response_model=ImageGrants,
    responses=failures(404, 409),
    summary="Take that back; what was made from it stays",
)
async def revoke(request: Request, image_id: ImageId, account: Annotated[AccountId, Path()]) -> Response:
    sharing = platform_of(request).artifacts.image_sharing
    return json_response(ImageGrants(accounts=await sharing.revoke(image_id, account, caller(request))))


@router.post(
    "/transfer",
    operation_id="transferImage",
    response_model=PublishedImage,
    responses=failures(404, 409),
    summary="Offer it to another account, which accepts it and pays for it from then on",
)
async def transfer(request: Request, image_id: ImageId, body: OfferImage) -> Response:
    sharing = platform_of(request).artifacts.image_sharing
    return _shown(request, await sharing.offer(image_id, body.account, caller(request)))


@router.post(
    "/accept",
    operation_id="acceptImage",
    response_model=PublishedImage,
    responses=failures(402, 404, 409),
    summary="Accept one that was offered to you",
)
async def accept(request: Request, image_id: ImageId) -> Response:
    sharing = platform_of(request).artifacts.image_sharing
    return _shown(request, await sharing.accept(image_id, caller(request)))


@router.post(
    "/lock",
    operation_id="lockImage",
    response_model=PublishedImage,
    responses=failures(404, 409),
    summary="From now on removing and unlocking it need a second proof",
)
async def lock(request: Request, image_id: ImageId) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.artifacts.images.get(image_id, who)
    if is_theirs(found, who):
        # Else nobody could unlock it again.
        await platform.wallets.second_proofs.demand_two(found.account)
    return _shown(request, await platform.artifacts.image_sharing.lock(image_id, who))


@router.post(
    "/unlock",
    operation_id="unlockImage",
    response_model=PublishedImage,
    responses=failures(404, 409, 428),
    summary="Let it be removed by a request alone again",
)
async def unlock(request: Request, image_id: ImageId) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.artifacts.images.get(image_id, who)
    if is_theirs(found, who):
        await confirm_locked(request, found, action="unlock")
    return _shown(request, await platform.artifacts.image_sharing.unlock(image_id, who))


def _shown(request: Request, record: records.PublishedImage) -> Response:
    return json_response(shown_image(record, is_theirs=is_theirs(record, caller(request))))
