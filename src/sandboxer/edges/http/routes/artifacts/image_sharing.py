"""Whom a published image is shared with, and whose it is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.policy import is_theirs
from sandboxer.artifacts.images.published.records import Visibility
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import confirm_locked
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.state import caller
from sandboxer.wire.images import ChangeImage, GrantImage, ImageGrants, OfferImage
from sandboxer.wire.operations import images as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import GrantPath, ImagePath


async def change(asked: Asked[ImagePath, NoParameters, ChangeImage]) -> Response:
    changed = await asked.platform.artifacts.image_sharing.change(
        asked.path.image_id,
        asked.caller,
        name=asked.body.name,
        description=asked.body.description,
        visibility=None if asked.body.visibility is None else Visibility(asked.body.visibility),
    )
    return _shown(asked.request, changed)


async def grants(asked: Asked[ImagePath, NoParameters, None]) -> ImageGrants:
    found = await asked.platform.artifacts.image_sharing.grants(asked.path.image_id, asked.caller)
    return ImageGrants(accounts=found)


async def grant(asked: Asked[ImagePath, NoParameters, GrantImage]) -> ImageGrants:
    sharing = asked.platform.artifacts.image_sharing
    return ImageGrants(accounts=await sharing.grant(asked.path.image_id, asked.body.account, asked.caller))


async def revoke(asked: Asked[GrantPath, NoParameters, None]) -> ImageGrants:
    sharing = asked.platform.artifacts.image_sharing
    return ImageGrants(accounts=await sharing.revoke(asked.path.image_id, asked.path.account, asked.caller))


async def transfer(asked: Asked[ImagePath, NoParameters, OfferImage]) -> Response:
    sharing = asked.platform.artifacts.image_sharing
    return _shown(asked.request, await sharing.offer(asked.path.image_id, asked.body.account, asked.caller))


async def accept(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    sharing = asked.platform.artifacts.image_sharing
    return _shown(asked.request, await sharing.accept(asked.path.image_id, asked.caller))


async def lock(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.images.get(asked.path.image_id, who)
    if is_theirs(found, who):
        # Else nobody could unlock it again.
        await platform.wallets.second_proofs.demand_two(found.account)
    return _shown(asked.request, await platform.artifacts.image_sharing.lock(asked.path.image_id, who))


async def unlock(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.images.get(asked.path.image_id, who)
    if is_theirs(found, who):
        await confirm_locked(asked.request, found, action="unlock")
    return _shown(asked.request, await platform.artifacts.image_sharing.unlock(asked.path.image_id, who))


def _shown(request: Request, record: records.PublishedImage) -> Response:
    return json_response(shown_image(record, is_theirs=is_theirs(record, caller(request))))


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CHANGE_IMAGE, change),
    bind(operations.LIST_IMAGE_GRANTS, grants),
    bind(operations.GRANT_IMAGE, grant),
    bind(operations.REVOKE_IMAGE, revoke),
    bind(operations.TRANSFER_IMAGE, transfer),
    bind(operations.ACCEPT_IMAGE, accept),
    bind(operations.LOCK_IMAGE, lock),
    bind(operations.UNLOCK_IMAGE, unlock),
)
