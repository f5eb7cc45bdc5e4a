"""Routes of published images: publish a disk, show it, start from it, remove it.

They also share an image and hand it over, and transfer images as archives to and from Docker and Podman.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.images.oci.export import Form
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.policy import is_theirs
from sandboxer.artifacts.images.published.records import Visibility
from sandboxer.artifacts.images.published.use_cases import Wanted
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response, shown_image
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.bodies import Download
from sandboxer.edges.http.demands import confirm_locked, pass_gate
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import Bind, BindOne, once_bound, once_many
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.requests import caller, copy_request, mounts, platform_of
from sandboxer.edges.http.routes.files import body_of
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.images import (
    ChangeImage,
    CloneImage,
    GrantImage,
    ImageGrants,
    OfferImage,
    PublishImage,
    SpawnImage,
)
from sandboxer.wire.operations import images as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.images import ExportImageQuery, ImportImageQuery
from sandboxer.wire.operations.paths import GrantPath, ImagePath
from sandboxer.wire.snapshots import Clones, FailedClone

Act = Callable[[Bind | None], Awaitable[Response]]


async def publish(asked: Asked[NoParameters, NoParameters, PublishImage]) -> Response:
    platform, who = asked.platform, asked.caller
    wanted = Wanted(
        name=asked.body.name,
        description=asked.body.description,
        visibility=Visibility(asked.body.visibility),
        clean=asked.body.clean,
    )
    given = [one for one in (asked.body.snapshot, asked.body.sandbox, asked.body.service) if one is not None]
    if len(given) != 1:
        raise InvalidRequest(field="snapshot", why="exactly one of snapshot, sandbox and service")
    things = {"snapshot": asked.body.snapshot, "sandbox": asked.body.sandbox, "service": asked.body.service}
    for thing, named in things.items():
        if named is not None:
            await note_use(platform, who, thing, named, "publish")

    async def act(bind: Bind | None) -> Response:
        use_cases = platform.artifacts.images
        if asked.body.snapshot is not None:
            return _made(
                asked.request, await use_cases.publish_snapshot(asked.body.snapshot, wanted, who, also=bind)
            )
        sandbox_id, source = asked.body.sandbox or "", None
        if asked.body.service is not None:
            service = platform.services.get(asked.body.service, who)
            sandbox_id, source = service.sandbox_id, service.id
        made = await use_cases.publish_sandbox(sandbox_id, wanted, who, source=source, also=bind)
        return _made(asked.request, made)

    return await _once(asked.request, act)


async def get(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    return _shown(asked.request, await asked.platform.artifacts.images.get(asked.path.image_id, asked.caller))


async def remove(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    use_cases, who = asked.platform.artifacts.images, asked.caller
    found = await use_cases.get(asked.path.image_id, who)
    is_confirmed = is_theirs(found, who) and await confirm_locked(asked.request, found, action="remove")
    removed = await use_cases.drop(asked.path.image_id, who, despite_lock=is_confirmed)
    return _shown(asked.request, removed)


async def verify(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    return _shown(
        asked.request, await asked.platform.artifacts.images.verify(asked.path.image_id, asked.caller)
    )


async def clone(asked: Asked[ImagePath, NoParameters, CloneImage]) -> Response:
    use_cases, who = asked.platform.artifacts.images, asked.caller
    wanted = Wanted(
        name=asked.body.name or "",
        description=asked.body.description or "",
        visibility=Visibility(asked.body.visibility),
    )

    async def act(bind: Bind | None) -> Response:
        return _made(asked.request, await use_cases.clone(asked.path.image_id, wanted, who, also=bind))

    return await _once(asked.request, act)


async def spawn(asked: Asked[ImagePath, NoParameters, SpawnImage]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        given = replace(copy_request(asked.body), volumes=await mounts(asked.request, asked.body.volumes))
        wanted = await artifacts.spawning.request_for(asked.path.image_id, given, who)
        await pass_gate(asked.request, wanted.profile)
        batch = Batch(count=asked.body.count, begun=begun, also=bind)
        made = await artifacts.spawning.spawn(
            asked.path.image_id, replace(given, profile=wanted.profile), who, batch
        )
        failed = [
            FailedClone.model_construct(number=number, problem=problems.model_of(asked.request, error))
            for number, error in made.failed.items()
        ]
        shown = [answers.sandbox(each) for each in made.sandboxes]
        return json_response(Clones.model_construct(sandboxes=shown, failed=failed), 201)

    return await once_many(asked.request, act)


async def _once(request: Request, act: Act) -> Response:
    use_cases, who = platform_of(request).artifacts.images, caller(request)

    async def recall(image_id: str) -> Response | None:
        made = await use_cases.recall(image_id, who)
        return None if made is None else _made(request, made)

    return await once_bound(request, act, recall=recall)


def _shown(request: Request, record: records.PublishedImage, status: int = 200) -> Response:
    return json_response(shown_image(record, is_theirs=is_theirs(record, caller(request))), status)


def _made(request: Request, record: records.PublishedImage) -> Response:
    answer = _shown(request, record, 201)
    answer.headers["location"] = f"/v1/images/{record.id}"
    return answer


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
        # Otherwise nobody could unlock it again.
        await platform.wallets.second_proofs.demand_two(found.account)
    return _shown(asked.request, await platform.artifacts.image_sharing.lock(asked.path.image_id, who))


async def unlock(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.images.get(asked.path.image_id, who)
    if is_theirs(found, who):
        await confirm_locked(asked.request, found, action="unlock")
    return _shown(asked.request, await platform.artifacts.image_sharing.unlock(asked.path.image_id, who))


async def export(asked: Asked[ImagePath, ExportImageQuery, None]) -> Response:
    made = await asked.platform.artifacts.exporting.export(
        asked.path.image_id, Form(asked.query.format), asked.caller
    )
    return Download(
        made.chunks,
        headers={"content-disposition": f'attachment; filename="{made.name}"'},
        media_type="application/x-tar",
        length=made.length,
    )


async def receive(asked: Asked[NoParameters, ImportImageQuery, None]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller
    wanted = Wanted(
        name=asked.query.name,
        description=asked.query.description,
        visibility=records.Visibility(asked.query.visibility),
        clean=asked.query.clean,
    )

    async def act(bind: Bind | None) -> Response:
        return _received(
            await artifacts.importing.receive(
                body_of(asked.request),
                wanted,
                who,
                profile=asked.query.profile,
                also=bind,
                attended=partial(until_client_goes, asked.request.receive),
            )
        )

    async def recall(image_id: str) -> Response | None:
        made = await artifacts.images.recall(image_id, who)
        return None if made is None else _received(made)

    try:
        return await once_bound(asked.request, act, recall=recall, content=_announced(asked.request))
    except TooSlow:
        return problems.framework_response(
            408,
            "The body came too slowly.",
            problems.request_id_of(asked.request.scope),
            {"connection": "close"},
        )


def _announced(request: Request) -> str:
    """Returns what the head says about the archive. Its digest is as good as signed, because another body is
    refused at its end.

    A session's token signs nothing; there the length has to suffice.
    """
    claimed = request.headers.get("x-content-sha256", "").lower()
    return claimed or "length " + request.headers.get("content-length", "unknown")


def _received(image: records.PublishedImage) -> Response:
    answer = json_response(shown_image(image, is_theirs=True), 201)
    answer.headers["location"] = f"/v1/images/{image.id}"
    return answer


BINDINGS: tuple[Binding, ...] = (
    bind(operations.PUBLISH_IMAGE, publish),
    bind(operations.GET_IMAGE, get),
    bind(operations.REMOVE_IMAGE, remove),
    bind(operations.VERIFY_IMAGE, verify),
    bind(operations.CLONE_IMAGE, clone),
    bind(operations.SPAWN_IMAGE, spawn),
    bind(operations.CHANGE_IMAGE, change),
    bind(operations.LIST_IMAGE_GRANTS, grants),
    bind(operations.GRANT_IMAGE, grant),
    bind(operations.REVOKE_IMAGE, revoke),
    bind(operations.TRANSFER_IMAGE, transfer),
    bind(operations.ACCEPT_IMAGE, accept),
    bind(operations.LOCK_IMAGE, lock),
    bind(operations.UNLOCK_IMAGE, unlock),
    bind(operations.EXPORT_IMAGE, export),
    bind(operations.IMPORT_IMAGE, receive),
)
