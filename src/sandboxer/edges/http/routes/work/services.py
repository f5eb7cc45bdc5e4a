"""Services: make, look, change, redeploy, put to sleep, remove; and read what they print."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.scopes import Scope
from sandboxer.artifacts.images.published.spawning import is_image_id
from sandboxer.edges.http import serving_services as words
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.failures import SERVER_EVENT, failures, inside
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.key_scopes import demand_scope, holds_scope
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.paying import offering, price_of_create
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_use
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.wire.services import (
    LOG_TAIL_MAX,
    ChangeService,
    CreateService,
    LogPage,
    RedeployService,
    Service,
    ServicePage,
    ServiceRef,
    ServiceState,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor
from sandboxer.work.services import records
from sandboxer.work.services.creating import price_request
from sandboxer.work.services.keeping.logs import Line
from sandboxer.work.services.states import State

router = APIRouter(prefix="/v1/services", tags=["services"], route_class=LeanRoute)
Wait = Annotated[bool, Query(description="Answer only when it runs, or it is known why it does not.")]
After = Annotated[int | None, Query(ge=0, le=2**53, description="Only lines with a greater number.")]


@router.post(
    "",
    operation_id="createService",
    status_code=201,
    response_model=Service,
    responses=inside(402),
    summary="Make a service: a process with a name that is kept running, in a sandbox of its own",
)
async def create(
    request: Request, body: CreateService, wait: Wait = True, idempotency_key: IdempotencyKey = None
) -> Response:
    platform, who, wanted = platform_of(request), caller(request), words.wanted(body)

    async def act(bind: Bind | None) -> Response:
        begun = await _begun(request, body, wanted.sandbox)
        # What it runs is the caller's code.
        await demand_scope(request, Scope.EXEC)
        volumes = await mounts(request, body.volumes)
        having = replace(wanted, sandbox=replace(begun, volumes=volumes))
        asked = price_request(platform.services.means, having)
        await pass_gate(request, asked.profile)
        async with (
            offering(request, lambda: price_of_create(platform, asked, who.account)),
            platform.slots.taken(await platform.authorities.of(who)),
        ):
            made = await platform.services.create(having, who, wait=wait, also=bind)
        return _created(request, made)

    async def recall(service_id: str) -> Response | None:
        made = await platform.services.recall(service_id, who, wait=wait)
        return None if made is None else _created(request, made)

    return await once_bound(request, act, recall=recall)


async def _begun(request: Request, body: CreateService, sandbox: CreateRequest) -> CreateRequest:
    """Part of the act: what it begins as may be gone when the same answer is asked for again."""
    platform, who = platform_of(request), caller(request)
    if body.snapshot is not None:
        await note_use(platform, who, "snapshots", body.snapshot, "clone")
        return await platform.artifacts.cloning.request_for(body.snapshot, sandbox, who)
    if body.image is not None and is_image_id(body.image):
        await note_use(platform, who, "images", body.image, "spawn")
        return await platform.artifacts.spawning.request_for(body.image, sandbox, who)
    return sandbox


@router.get(
    "",
    operation_id="listServices",
    response_model=ServicePage,
    responses=failures(),
    summary="List services, newest first",
)
async def list_services(
    request: Request,
    state: Annotated[ServiceState | None, Query(description="Default: all.")] = None,
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    page = await platform_of(request).services.list(
        caller(request), state=None if state is None else State(state), cursor=cursor, limit=limit
    )
    shown = [words.shown(request, service) for service in page.services]
    return json_response(ServicePage.model_construct(services=shown, next_cursor=page.next_cursor))


@router.get(
    "/{service}",
    operation_id="getService",
    response_model=Service,
    responses=failures(404),
    summary="Look at a service",
)
async def get(request: Request, service: ServiceRef) -> Response:
    return _answer(request, platform_of(request).services.get(service, caller(request)))


@router.patch(
    "/{service}",
    operation_id="changeService",
    response_model=Service,
    responses=inside(402),
    summary="Change how it is kept; a change of env or port makes a new process",
)
async def change(request: Request, service: ServiceRef, body: ChangeService, wait: Wait = True) -> Response:
    await demand_scope(request, Scope.EXEC)
    services, who = platform_of(request).services, caller(request)
    spec = words.changed(services.get(service, who).spec, body)
    changed = await services.change(service, who, spec, wait=wait)
    if body.vcpus == 0:
        await platform_of(request).sandboxes.unboost(changed.sandbox_id, who)
    elif body.vcpus is not None:
        await platform_of(request).sandboxes.boost(changed.sandbox_id, body.vcpus, who)
    return _answer(request, changed)


@router.delete(
    "/{service}",
    operation_id="removeService",
    response_model=Service,
    responses=inside(428),
    summary="Remove it with its sandbox, its disk and its log",
)
async def remove(request: Request, service: ServiceRef) -> Response:
    services, who = platform_of(request).services, caller(request)
    found = services.get(service, who)
    is_confirmed = await confirm_locked(request, await services.sandbox(found), action="destroy")
    removed = await services.remove(found.id, who, despite_lock=is_confirmed)
    return _answer(request, removed)


@router.post(
    "/{service}/redeploy",
    operation_id="redeployService",
    response_model=Service,
    responses=inside(402),
    summary="Give it a new program, files or environment; the old process goes on until the new one is well",
)
async def redeploy(
    request: Request, service: ServiceRef, body: RedeployService, wait: Wait = True
) -> Response:
    services = platform_of(request).services
    # A sleeping one is woken for it, and costs again.
    may_wake = await holds_scope(request, Scope.SANDBOXES_MANAGE)
    done = await services.redeploy(
        service, caller(request), words.redeploy(body), wait=wait, may_wake=may_wake
    )
    return _answer(request, done)


@router.post(
    "/{service}/freeze",
    operation_id="freezeService",
    response_model=Service,
    responses=inside(),
    summary="Put it to sleep: frozen in memory, at the frozen price",
)
async def freeze(request: Request, service: ServiceRef) -> Response:
    return _answer(request, await platform_of(request).services.freeze(service, caller(request)))


@router.post(
    "/{service}/thaw",
    operation_id="thawService",
    response_model=Service,
    responses=inside(402),
    summary="Wake it",
)
async def thaw(request: Request, service: ServiceRef) -> Response:
    return _answer(request, await platform_of(request).services.thaw(service, caller(request)))


@router.post(
    "/{service}/stop",
    operation_id="stopService",
    response_model=Service,
    responses=inside(),
    summary="End its process and stop its sandbox; the disk is kept",
)
async def stop(request: Request, service: ServiceRef) -> Response:
    return _answer(request, await platform_of(request).services.stop(service, caller(request)))


@router.post(
    "/{service}/start",
    operation_id="startService",
    response_model=Service,
    responses=inside(402),
    summary="Start what was stopped, has failed, or was given up",
)
async def start(request: Request, service: ServiceRef, wait: Wait = True) -> Response:
    services = platform_of(request).services
    return _answer(request, await services.start(service, caller(request), wait=wait))


@router.post(
    "/{service}/lock",
    operation_id="lockService",
    response_model=Service,
    responses=failures(404, 409),
    summary="From now on removing and unlocking it need a second proof",
)
async def lock(request: Request, service: ServiceRef) -> Response:
    platform, who = platform_of(request), caller(request)
    found = platform.services.get(service, who)
    # Else nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    await platform.sandboxes.lock(found.sandbox_id, who)
    return _answer(request, found)


@router.post(
    "/{service}/unlock",
    operation_id="unlockService",
    response_model=Service,
    responses=failures(404, 409, 428),
    summary="Let it be removed by a request alone again",
)
async def unlock(request: Request, service: ServiceRef) -> Response:
    platform, who = platform_of(request), caller(request)
    found = platform.services.get(service, who)
    await confirm_locked(request, await platform.services.sandbox(found), action="unlock")
    await platform.sandboxes.unlock(found.sandbox_id, who)
    return _answer(request, found)


@router.get(
    "/{service}/logs",
    operation_id="readServiceLogs",
    response_model=LogPage,
    responses={
        **failures(404),
        200: {
            "description": "The last lines; with `follow` a stream of `line` events that does not end.",
            "content": {"text/event-stream": {"schema": SERVER_EVENT}},
        },
    },
    summary="What it printed: the last lines, or as it comes",
)
async def logs(
    request: Request,
    service: ServiceRef,
    tail: Annotated[int, Query(ge=0, le=LOG_TAIL_MAX, description="How many of the last lines.")] = 100,
    follow: Annotated[bool, Query(description="Go on with what comes.")] = False,
    after: After = None,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,15}$", description="As `after`.")] = None,
) -> Response:
    services, who = platform_of(request).services, caller(request)
    seen = after if last_event_id is None else int(last_event_id)
    lines = services.tail(service, who, LOG_TAIL_MAX if seen is not None else tail)
    lines = [line for line in lines if line.number > (seen or 0)]
    if not follow:
        return json_response(LogPage.model_construct(lines=[words.line(line) for line in lines]))
    begin = lines[0].number - 1 if lines else seen if seen is not None else services.last_line(service, who)
    return EventStream(_lines(services.follow(service, who, after=begin)), begin_at_once=True)


async def _lines(source: AsyncIterator[Line]) -> AsyncIterator[ServerEvent]:
    async with aclosing(source) as lines:  # type: ignore[type-var]
        async for line in lines:
            yield ServerEvent("line", words.line(line), str(line.number))


def _created(request: Request, made: records.Service) -> Response:
    answer = json_response(words.shown(request, made), 201)
    answer.headers["location"] = f"/v1/services/{made.id}"
    return answer


def _answer(request: Request, service: records.Service) -> Response:
    return json_response(words.shown(request, service))
