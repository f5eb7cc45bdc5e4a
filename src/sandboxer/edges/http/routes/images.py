"""Routes of published images: publish a disk, show it, start from it, remove it.

They also share an image and hand it over, and transfer images as archives to and from Docker and Podman.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.images.builders.use_cases import READY, START, Event, Recipe, Source
from sandboxer.artifacts.images.builders.workshop import PROFILE as BUILDER
from sandboxer.artifacts.images.builders.workshop import Said
from sandboxer.artifacts.images.oci.export import Form
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.records import Visibility
from sandboxer.artifacts.images.published.use_cases import Wanted
from sandboxer.artifacts.policy import is_theirs
from sandboxer.edges.http.answers import json_response, printable, shown_image
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.bodies import EVENT_STREAM, Download, EventStream, ServerEvent
from sandboxer.edges.http.demands import confirm_locked, pass_gate
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import Bind, BindOne, make_once, once_many
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.requests import caller, copy_request, mounts
from sandboxer.edges.http.routes.disks import shown_clones
from sandboxer.edges.http.routes.work.files import body_of
from sandboxer.kernel.errors import Broken, InvalidRequest
from sandboxer.wire.images import (
    ChangeImage,
    CloneImage,
    GrantImage,
    ImageGrants,
    ImageProgress,
    OfferImage,
    PublishImage,
    PullImage,
    SpawnImage,
)
from sandboxer.wire.operations import artifacts as operations


async def publish(asked: AskedBody[PublishImage]) -> Response:
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

    use_cases = platform.artifacts.images

    async def make(bind: Bind | None) -> records.PublishedImage:
        if asked.body.snapshot is not None:
            return await use_cases.publish_snapshot(asked.body.snapshot, wanted, who, also=bind)
        sandbox_id, source = asked.body.sandbox or "", None
        if asked.body.service is not None:
            service = platform.services.get(asked.body.service, who)
            sandbox_id, source = service.sandbox_id, service.id
        return await use_cases.publish_sandbox(sandbox_id, wanted, who, source=source, also=bind)

    return await make_once(asked.request, make, use_cases.recall, partial(_made, asked.request))


async def get(asked: Asked[operations.ImagePath]) -> Response:
    return _shown(asked.request, await asked.platform.artifacts.images.get(asked.path.image_id, asked.caller))


async def remove(asked: Asked[operations.ImagePath]) -> Response:
    use_cases, who = asked.platform.artifacts.images, asked.caller
    found = await use_cases.get(asked.path.image_id, who)
    is_confirmed = is_theirs(found, who) and await confirm_locked(asked.request, found, action="remove")
    return _shown(asked.request, await use_cases.drop(asked.path.image_id, who, despite_lock=is_confirmed))


async def verify(asked: Asked[operations.ImagePath]) -> Response:
    return _shown(
        asked.request, await asked.platform.artifacts.images.verify(asked.path.image_id, asked.caller)
    )


async def clone(asked: AskedPathBody[operations.ImagePath, CloneImage]) -> Response:
    use_cases, who = asked.platform.artifacts.images, asked.caller
    wanted = Wanted(
        name=asked.body.name or "",
        description=asked.body.description or "",
        visibility=Visibility(asked.body.visibility),
    )

    async def make(bind: Bind | None) -> records.PublishedImage:
        return await use_cases.clone(asked.path.image_id, wanted, who, also=bind)

    return await make_once(asked.request, make, use_cases.recall, partial(_made, asked.request))


async def spawn(asked: AskedPathBody[operations.ImagePath, SpawnImage]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        given = replace(copy_request(asked.body), volumes=await mounts(asked.request, asked.body.volumes))
        wanted = await artifacts.spawning.request_for(asked.path.image_id, given, who)
        await pass_gate(asked.request, wanted.profile)
        batch = Batch(count=asked.body.count, begun=begun, also=bind)
        made = await artifacts.spawning.spawn(
            asked.path.image_id, replace(given, profile=wanted.profile), who, batch
        )
        return shown_clones(asked.request, made)

    return await once_many(asked.request, act)


def _shown(request: Request, record: records.PublishedImage) -> Response:
    return json_response(shown_image(record, is_theirs=is_theirs(record, caller(request))))


def _made(request: Request, record: records.PublishedImage) -> Response:
    shown = shown_image(record, is_theirs=is_theirs(record, caller(request)))
    return json_response(shown, 201, location=f"/v1/images/{record.id}")


async def change(asked: AskedPathBody[operations.ImagePath, ChangeImage]) -> Response:
    changed = await asked.platform.artifacts.image_sharing.change(
        asked.path.image_id,
        asked.caller,
        name=asked.body.name,
        description=asked.body.description,
        visibility=None if asked.body.visibility is None else Visibility(asked.body.visibility),
    )
    return _shown(asked.request, changed)


async def grants(asked: Asked[operations.ImagePath]) -> ImageGrants:
    found = await asked.platform.artifacts.image_sharing.grants(asked.path.image_id, asked.caller)
    return ImageGrants(accounts=found)


async def grant(asked: AskedPathBody[operations.ImagePath, GrantImage]) -> ImageGrants:
    sharing = asked.platform.artifacts.image_sharing
    return ImageGrants(accounts=await sharing.grant(asked.path.image_id, asked.body.account, asked.caller))


async def revoke(asked: Asked[operations.GrantPath]) -> ImageGrants:
    sharing = asked.platform.artifacts.image_sharing
    return ImageGrants(accounts=await sharing.revoke(asked.path.image_id, asked.path.account, asked.caller))


async def transfer(asked: AskedPathBody[operations.ImagePath, OfferImage]) -> Response:
    sharing = asked.platform.artifacts.image_sharing
    return _shown(asked.request, await sharing.offer(asked.path.image_id, asked.body.account, asked.caller))


async def accept(asked: Asked[operations.ImagePath]) -> Response:
    sharing = asked.platform.artifacts.image_sharing
    return _shown(asked.request, await sharing.accept(asked.path.image_id, asked.caller))


async def lock(asked: Asked[operations.ImagePath]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.images.get(asked.path.image_id, who)
    if is_theirs(found, who):
        # Otherwise nobody could unlock it again.
        await platform.wallets.second_proofs.demand_two(found.account)
    return _shown(asked.request, await platform.artifacts.images.lock(asked.path.image_id, who))


async def unlock(asked: Asked[operations.ImagePath]) -> Response:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.images.get(asked.path.image_id, who)
    if is_theirs(found, who):
        await confirm_locked(asked.request, found, action="unlock")
    return _shown(asked.request, await platform.artifacts.images.unlock(asked.path.image_id, who))


async def export(asked: Asked[operations.ImagePath, operations.ExportImageQuery]) -> Response:
    made = await asked.platform.artifacts.exporting.export(
        asked.path.image_id, Form(asked.query.format), asked.caller
    )
    return Download(
        made.chunks,
        headers={"content-disposition": f'attachment; filename="{made.name}"'},
        media_type="application/x-tar",
        length=made.length,
    )


async def receive(asked: AskedQuery[operations.ImportImageQuery]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller
    wanted = _wanted(asked.query)

    async def make(bind: Bind | None) -> records.PublishedImage:
        return await artifacts.importing.receive(
            body_of(asked.request),
            wanted,
            who,
            profile=asked.query.profile,
            also=bind,
            attended=partial(until_client_goes, asked.request.receive),
        )

    recall, show = artifacts.images.recall, partial(_made, asked.request)
    return await make_once(asked.request, make, recall, show, content=_announced(asked.request))


async def build(asked: AskedQuery[operations.BuildImageQuery]) -> Response:
    artifacts, who, query = asked.platform.artifacts, asked.caller, asked.query
    await pass_gate(asked.request, BUILDER)
    given = ((START, query.start), (READY, query.ready))
    recipe = Recipe(
        file=query.file,
        target=query.target,
        args=dict(one.split("=", 1) for one in query.arg),
        labels={name: words for name, words in given if words is not None},
        cached=query.cache,
    )
    # Whole before anything is made: from then on the client only listens.
    context = await artifacts.builders.receive(body_of(asked.request), who)
    making = artifacts.builders.build(context, recipe, _wanted(query), who, profile=query.profile)
    return await _making(asked.request, making)


async def pull(asked: AskedBody[PullImage]) -> Response:
    builders, who, body = asked.platform.artifacts.builders, asked.caller, asked.body
    await pass_gate(asked.request, BUILDER)
    user = body.user
    source = Source(
        reference=body.reference,
        credentials=None if user is None else (user.username, user.password.get_secret_value()),
        plain_http=body.plain_http,
    )
    return await _making(asked.request, builders.pull(source, _wanted(body), who, profile=body.profile))


def _wanted(given: operations.ImportImageQuery | PullImage) -> Wanted:
    return Wanted(
        name=given.name or "",
        description=given.description,
        visibility=Visibility(given.visibility),
        clean=given.clean,
    )


async def _making(request: Request, making: AsyncGenerator[Event]) -> Response:
    if EVENT_STREAM in request.headers.get("accept", ""):
        return EventStream(_progress(request, making))
    async with until_client_goes(request.receive), aclosing(making) as events:
        async for event in events:
            if not isinstance(event, Said):
                return _shown(request, event)
    raise Broken(why="a builder ended without an image")


async def _progress(request: Request, making: AsyncGenerator[Event]) -> AsyncGenerator[ServerEvent]:
    async with aclosing(making) as events:
        async for event in events:
            if isinstance(event, Said):
                yield ServerEvent("output", ImageProgress.model_construct(text=printable(event.text)))
            else:
                yield ServerEvent("done", shown_image(event, is_theirs=is_theirs(event, caller(request))))


def _announced(request: Request) -> str:
    """Returns what the head says about the archive. Its digest is as good as signed, because another body is
    refused at its end.

    A session's token signs nothing; there the length has to suffice.
    """
    claimed = request.headers.get("x-content-sha256", "").lower()
    return claimed or "length " + request.headers.get("content-length", "unknown")


BINDINGS = (
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
    bind(operations.BUILD_IMAGE, build),
    bind(operations.PULL_IMAGE, pull),
)
