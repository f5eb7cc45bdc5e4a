"""Published images: make one of a disk, look at it, start from it, remove it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.desk import Wanted
from sandboxer.artifacts.images.published.policy import is_theirs
from sandboxer.artifacts.images.published.records import Visibility
from sandboxer.artifacts.snapshots.cloning import Batch
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.failures import failures, inside
from sandboxer.edges.http.idempotency import Bind, BindOne, IdempotencyKey, once_bound, once_many
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_use
from sandboxer.kernel.errors import InvalidRequest, SandboxerError
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.wire.images import CloneImage, PublishedImage, PublishImage, SpawnImage
from sandboxer.wire.problems import Problem
from sandboxer.wire.snapshots import Clones, FailedClone
from sandboxer.wire.words import ImageId

Act = Callable[[Bind | None], Awaitable[Response]]
router = APIRouter(prefix="/v1/images", tags=["images"])


@router.post(
    "",
    operation_id="publishImage",
    status_code=201,
    response_model=PublishedImage,
    responses=inside(402),
    summary="Publish a snapshot, or a sandbox's or a service's disk as it is now",
)
async def publish(request: Request, body: PublishImage, idempotency_key: IdempotencyKey = None) -> Response:
    platform, who = platform_of(request), caller(request)
    wanted = Wanted(
        name=body.name,
        description=body.description,
        visibility=Visibility(body.visibility),
        clean=body.clean,
    )
    given = [one for one in (body.snapshot, body.sandbox, body.service) if one is not None]
    if len(given) != 1:
        raise InvalidRequest(field="snapshot", why="exactly one of snapshot, sandbox and service")
    nouns = {"snapshots": body.snapshot, "sandboxes": body.sandbox, "services": body.service}
    for noun, named in nouns.items():
        if named is not None:
            await note_use(platform, who, noun, named, "publish")

    async def act(bind: Bind | None) -> Response:
        desk = platform.artifacts.images
        if body.snapshot is not None:
            return _made(request, await desk.publish_snapshot(body.snapshot, wanted, who, also=bind))
        sandbox_id, source = body.sandbox or "", None
        if body.service is not None:
            service = platform.services.get(body.service, who)
            sandbox_id, source = service.sandbox_id, service.id
        made = await desk.publish_sandbox(sandbox_id, wanted, who, source=source, also=bind)
        return _made(request, made)

    return await _once(request, act)


@router.get(
    "/{image_id}",
    operation_id="getImage",
    response_model=PublishedImage,
    responses=failures(404),
    summary="Look at a published image",
)
async def get(request: Request, image_id: ImageId) -> Response:
    return _shown(request, await platform_of(request).artifacts.images.get(image_id, caller(request)))


@router.delete(
    "/{image_id}",
    operation_id="removeImage",
    response_model=PublishedImage,
    responses=failures(404, 409, 428),
    summary="Remove an image; gone already is success, what was made from it stays",
)
async def remove(request: Request, image_id: ImageId) -> Response:
    desk, who = platform_of(request).artifacts.images, caller(request)
    found = await desk.get(image_id, who)
    is_confirmed = is_theirs(found, who) and await confirm_locked(request, found, action="remove")
    removed = await desk.drop(image_id, who, despite_lock=is_confirmed)
    return _shown(request, removed)


@router.post(
    "/{image_id}/verify",
    operation_id="verifyImage",
    response_model=PublishedImage,
    responses=inside(),
    summary="Read every file of it and compare the digest; one that was altered is refused from then on",
)
async def verify(request: Request, image_id: ImageId) -> Response:
    return _shown(request, await platform_of(request).artifacts.images.verify(image_id, caller(request)))


@router.post(
    "/{image_id}/clone",
    operation_id="cloneImage",
    status_code=201,
    response_model=PublishedImage,
    responses=inside(402),
    summary="A copy in your own account, which outlives the original",
)
async def clone(
    request: Request, image_id: ImageId, body: CloneImage, idempotency_key: IdempotencyKey = None
) -> Response:
    desk, who = platform_of(request).artifacts.images, caller(request)
    wanted = Wanted(
        name=body.name or "", description=body.description or "", visibility=Visibility(body.visibility)
    )

    async def act(bind: Bind | None) -> Response:
        return _made(request, await desk.clone(image_id, wanted, who, also=bind))

    return await _once(request, act)


@router.post(
    "/{image_id}/spawn",
    operation_id="spawnImage",
    status_code=201,
    response_model=Clones,
    responses=inside(402),
    summary="New sandboxes that begin as the image, each a new machine",
)
async def spawn(
    request: Request, image_id: ImageId, body: SpawnImage, idempotency_key: IdempotencyKey = None
) -> Response:
    artifacts, who = platform_of(request).artifacts, caller(request)

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        asked = replace(_request(body), volumes=await mounts(request, body.volumes))
        wanted = await artifacts.spawning.request_for(image_id, asked, who)
        await pass_gate(request, wanted.profile)
        batch = Batch(count=body.count, begun=begun, also=bind)
        made = await artifacts.spawning.spawn(image_id, replace(asked, profile=wanted.profile), who, batch)
        failed = [
            FailedClone.model_construct(number=number, problem=_problem(request, error))
            for number, error in made.failed.items()
        ]
        shown = [answers.sandbox(each) for each in made.sandboxes]
        return json_response(Clones.model_construct(sandboxes=shown, failed=failed), 201)

    return await once_many(request, act)


async def _once(request: Request, act: Act) -> Response:
    desk, who = platform_of(request).artifacts.images, caller(request)

    async def recall(image_id: str) -> Response | None:
        made = await desk.recall(image_id, who)
        return None if made is None else _made(request, made)

    return await once_bound(request, act, recall=recall)


def _shown(request: Request, record: records.PublishedImage, status: int = 200) -> Response:
    return json_response(shown_image(record, is_theirs=is_theirs(record, caller(request))), status)


def _made(request: Request, record: records.PublishedImage) -> Response:
    answer = _shown(request, record, 201)
    answer.headers["location"] = f"/v1/images/{record.id}"
    return answer


def _request(body: SpawnImage) -> CreateRequest:
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
