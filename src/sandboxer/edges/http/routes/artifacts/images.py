"""Published images: make one of a disk, look at it, start from it, remove it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.desk import Wanted
from sandboxer.artifacts.images.published.policy import is_theirs
from sandboxer.artifacts.images.published.records import Visibility
from sandboxer.artifacts.snapshots.cloning import Batch
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.idempotency import Bind, BindOne, once_bound, once_many
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_use
from sandboxer.kernel.errors import InvalidRequest, SandboxerError
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.wire.images import CloneImage, PublishImage, SpawnImage
from sandboxer.wire.operations import images as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import ImagePath
from sandboxer.wire.problems import Problem
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
        desk = platform.artifacts.images
        if asked.body.snapshot is not None:
            return _made(
                asked.request, await desk.publish_snapshot(asked.body.snapshot, wanted, who, also=bind)
            )
        sandbox_id, source = asked.body.sandbox or "", None
        if asked.body.service is not None:
            service = platform.services.get(asked.body.service, who)
            sandbox_id, source = service.sandbox_id, service.id
        made = await desk.publish_sandbox(sandbox_id, wanted, who, source=source, also=bind)
        return _made(asked.request, made)

    return await _once(asked.request, act)


async def get(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    return _shown(asked.request, await asked.platform.artifacts.images.get(asked.path.image_id, asked.caller))


async def remove(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    desk, who = asked.platform.artifacts.images, asked.caller
    found = await desk.get(asked.path.image_id, who)
    is_confirmed = is_theirs(found, who) and await confirm_locked(asked.request, found, action="remove")
    removed = await desk.drop(asked.path.image_id, who, despite_lock=is_confirmed)
    return _shown(asked.request, removed)


async def verify(asked: Asked[ImagePath, NoParameters, None]) -> Response:
    return _shown(
        asked.request, await asked.platform.artifacts.images.verify(asked.path.image_id, asked.caller)
    )


async def clone(asked: Asked[ImagePath, NoParameters, CloneImage]) -> Response:
    desk, who = asked.platform.artifacts.images, asked.caller
    wanted = Wanted(
        name=asked.body.name or "",
        description=asked.body.description or "",
        visibility=Visibility(asked.body.visibility),
    )

    async def act(bind: Bind | None) -> Response:
        return _made(asked.request, await desk.clone(asked.path.image_id, wanted, who, also=bind))

    return await _once(asked.request, act)


async def spawn(asked: Asked[ImagePath, NoParameters, SpawnImage]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        given = replace(_request(asked.body), volumes=await mounts(asked.request, asked.body.volumes))
        wanted = await artifacts.spawning.request_for(asked.path.image_id, given, who)
        await pass_gate(asked.request, wanted.profile)
        batch = Batch(count=asked.body.count, begun=begun, also=bind)
        made = await artifacts.spawning.spawn(
            asked.path.image_id, replace(given, profile=wanted.profile), who, batch
        )
        failed = [
            FailedClone.model_construct(number=number, problem=_problem(asked.request, error))
            for number, error in made.failed.items()
        ]
        shown = [answers.sandbox(each) for each in made.sandboxes]
        return json_response(Clones.model_construct(sandboxes=shown, failed=failed), 201)

    return await once_many(asked.request, act)


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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.PUBLISH_IMAGE, publish),
    bind(operations.GET_IMAGE, get),
    bind(operations.REMOVE_IMAGE, remove),
    bind(operations.VERIFY_IMAGE, verify),
    bind(operations.CLONE_IMAGE, clone),
    bind(operations.SPAWN_IMAGE, spawn),
)
