"""Services: make, look, change, redeploy, put to sleep, remove; and read what they print."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.scopes import Scope
from sandboxer.artifacts.images.published.spawning import is_image_id
from sandboxer.edges.http import serving_services as words
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.key_scopes import demand_scope, holds_scope
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.paying import offering, price_of_create
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_use
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.wire.operations import services as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import ServicePath
from sandboxer.wire.operations.services import (
    ChangeServiceQuery,
    CreateServiceQuery,
    ListServicesQuery,
    ReadServiceLogsQuery,
    RedeployServiceQuery,
    StartServiceQuery,
)
from sandboxer.wire.services import (
    LOG_TAIL_MAX,
    ChangeService,
    CreateService,
    LogPage,
    RedeployService,
    ServicePage,
)
from sandboxer.work.services import records
from sandboxer.work.services.creating import price_request
from sandboxer.work.services.keeping.logs import Line
from sandboxer.work.services.states import State


async def create(asked: Asked[NoParameters, CreateServiceQuery, CreateService]) -> Response:
    platform, who, wanted = asked.platform, asked.caller, words.wanted(asked.body)

    async def act(bind: Bind | None) -> Response:
        begun = await _begun(asked.request, asked.body, wanted.sandbox)
        # What it runs is the caller's code.
        await demand_scope(asked.request, Scope.EXEC)
        volumes = await mounts(asked.request, asked.body.volumes)
        having = replace(wanted, sandbox=replace(begun, volumes=volumes))
        priced = price_request(platform.services.means, having)
        await pass_gate(asked.request, priced.profile)
        async with (
            offering(asked.request, lambda: price_of_create(platform, priced, who.account)),
            platform.slots.taken(await platform.authorities.of(who)),
        ):
            made = await platform.services.create(having, who, wait=asked.query.wait, also=bind)
        return _created(asked.request, made)

    async def recall(service_id: str) -> Response | None:
        made = await platform.services.recall(service_id, who, wait=asked.query.wait)
        return None if made is None else _created(asked.request, made)

    return await once_bound(asked.request, act, recall=recall)


async def _begun(request: Request, body: CreateService, sandbox: CreateRequest) -> CreateRequest:
    """Part of the act: what it begins as may be gone when the same answer is asked for again."""
    platform, who = platform_of(request), caller(request)
    if body.snapshot is not None:
        await note_use(platform, who, "snapshot", body.snapshot, "clone")
        return await platform.artifacts.cloning.request_for(body.snapshot, sandbox, who)
    if body.image is not None and is_image_id(body.image):
        await note_use(platform, who, "image", body.image, "spawn")
        return await platform.artifacts.spawning.request_for(body.image, sandbox, who)
    return sandbox


async def list_services(asked: Asked[NoParameters, ListServicesQuery, None]) -> ServicePage:
    page = await asked.platform.services.list(
        asked.caller,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [words.shown(asked.request, service) for service in page.services]
    return ServicePage.model_construct(services=shown, next_cursor=page.next_cursor)


async def get(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return _answer(asked.request, asked.platform.services.get(asked.path.service, asked.caller))


async def change(asked: Asked[ServicePath, ChangeServiceQuery, ChangeService]) -> Response:
    await demand_scope(asked.request, Scope.EXEC)
    services, who = asked.platform.services, asked.caller
    spec = words.changed(services.get(asked.path.service, who).spec, asked.body)
    changed = await services.change(asked.path.service, who, spec, wait=asked.query.wait)
    if asked.body.vcpus == 0:
        await asked.platform.sandboxes.unboost(changed.sandbox_id, who)
    elif asked.body.vcpus is not None:
        await asked.platform.sandboxes.boost(changed.sandbox_id, asked.body.vcpus, who)
    return _answer(asked.request, changed)


async def remove(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    services, who = asked.platform.services, asked.caller
    found = services.get(asked.path.service, who)
    is_confirmed = await confirm_locked(asked.request, await services.sandbox(found), action="destroy")
    removed = await services.remove(found.id, who, despite_lock=is_confirmed)
    return _answer(asked.request, removed)


async def redeploy(asked: Asked[ServicePath, RedeployServiceQuery, RedeployService]) -> Response:
    services = asked.platform.services
    # A sleeping one is woken for it, and costs again.
    may_wake = await holds_scope(asked.request, Scope.SANDBOXES_MANAGE)
    done = await services.redeploy(
        asked.path.service, asked.caller, words.redeploy(asked.body), wait=asked.query.wait, may_wake=may_wake
    )
    return _answer(asked.request, done)


async def freeze(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return _answer(asked.request, await asked.platform.services.freeze(asked.path.service, asked.caller))


async def thaw(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return _answer(asked.request, await asked.platform.services.thaw(asked.path.service, asked.caller))


async def stop(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return _answer(asked.request, await asked.platform.services.stop(asked.path.service, asked.caller))


async def start(asked: Asked[ServicePath, StartServiceQuery, None]) -> Response:
    services = asked.platform.services
    return _answer(
        asked.request, await services.start(asked.path.service, asked.caller, wait=asked.query.wait)
    )


async def lock(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    found = platform.services.get(asked.path.service, who)
    # Else nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    await platform.sandboxes.lock(found.sandbox_id, who)
    return _answer(asked.request, found)


async def unlock(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    found = platform.services.get(asked.path.service, who)
    await confirm_locked(asked.request, await platform.services.sandbox(found), action="unlock")
    await platform.sandboxes.unlock(found.sandbox_id, who)
    return _answer(asked.request, found)


async def logs(asked: Asked[ServicePath, ReadServiceLogsQuery, None]) -> Response:
    services, who = asked.platform.services, asked.caller
    seen = asked.query.after if asked.query.last_event_id is None else int(asked.query.last_event_id)
    lines = services.tail(asked.path.service, who, LOG_TAIL_MAX if seen is not None else asked.query.tail)
    lines = [line for line in lines if line.number > (seen or 0)]
    if not asked.query.follow:
        return json_response(LogPage.model_construct(lines=[words.line(line) for line in lines]))
    begin = (
        lines[0].number - 1
        if lines
        else seen
        if seen is not None
        else services.last_line(asked.path.service, who)
    )
    return EventStream(_lines(services.follow(asked.path.service, who, after=begin)), begin_at_once=True)


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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_SERVICE, create),
    bind(operations.LIST_SERVICES, list_services),
    bind(operations.GET_SERVICE, get),
    bind(operations.CHANGE_SERVICE, change),
    bind(operations.REMOVE_SERVICE, remove),
    bind(operations.REDEPLOY_SERVICE, redeploy),
    bind(operations.FREEZE_SERVICE, freeze),
    bind(operations.THAW_SERVICE, thaw),
    bind(operations.STOP_SERVICE, stop),
    bind(operations.START_SERVICE, start),
    bind(operations.LOCK_SERVICE, lock),
    bind(operations.UNLOCK_SERVICE, unlock),
    bind(operations.READ_SERVICE_LOGS, logs),
)
