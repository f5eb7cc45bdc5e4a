"""Routes of services: create, show, change, redeploy, put to sleep, remove, read logs; and their vaults and
domains.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.clones import is_image_id
from sandboxer.edges.http import services as words
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import confirm_locked, gate_proof, holds_scope
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.payment import offering
from sandboxer.edges.http.requests import caller, platform_of, wanted_volumes
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.wire.operations import services as operations
from sandboxer.wire.operations.declaration import NoParameters, Scope
from sandboxer.wire.operations.paths import DomainPath, ServicePath
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
    ChangeVault,
    ClaimDomain,
    CreateService,
    Domain,
    DomainList,
    LogPage,
    RedeployService,
    ServicePage,
    SetVault,
    Vault,
)
from sandboxer.work.services import records
from sandboxer.work.services.deployment import price_request
from sandboxer.work.services.lifecycle import State
from sandboxer.work.services.logs import Line


async def create(asked: Asked[NoParameters, CreateServiceQuery, CreateService]) -> Response:
    platform, who = asked.platform, asked.caller
    wanted = await words.wanted(asked.body, asked.lease)

    async def act(bind: Bind | None) -> Response:
        await _note_use(asked.request, asked.body)
        named = replace(
            wanted.sandbox, snapshot=asked.body.snapshot, wanted_volumes=wanted_volumes(asked.body.volumes)
        )
        # Only now: what it names may be gone when a repetition asks for the same answer.
        having = replace(wanted, sandbox=await platform.admission.complete(named, who))
        priced = price_request(platform.services.dependencies, having)
        async with (
            platform.admission.of(priced, who, gate_proof(asked.request)),
            offering(asked.request, lambda: platform.purchases.price(priced, who.account)),
        ):
            made = await platform.services.create(having, who, wait=asked.query.wait, also=bind)
        return _created(asked.request, made)

    async def recall(service_id: str) -> Response | None:
        made = await platform.services.recall(service_id, who, wait=asked.query.wait)
        return None if made is None else _created(asked.request, made)

    return await once_bound(asked.request, act, recall=recall)


async def _note_use(request: Request, body: CreateService) -> None:
    platform, who = platform_of(request), caller(request)
    if body.snapshot is not None:
        await note_use(platform, who, "snapshot", body.snapshot, "clone")
    elif body.image is not None and is_image_id(body.image):
        await note_use(platform, who, "image", body.image, "spawn")


async def list_services(asked: Asked[NoParameters, ListServicesQuery, None]) -> ServicePage:
    page = await asked.platform.services.list(
        asked.caller,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [words.shown(asked.request, service) for service in page.records]
    return ServicePage.model_construct(services=shown, next_cursor=page.next_cursor)


async def get(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return _answer(asked.request, asked.platform.services.get(asked.path.service, asked.caller))


async def change(asked: Asked[ServicePath, ChangeServiceQuery, ChangeService]) -> Response:
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
    # A sleeping one is woken for it, which costs.
    may_wake = await holds_scope(asked.request, Scope.SANDBOXES_MANAGE)
    wanted = await words.redeploy(asked.body, asked.lease)
    done = await services.redeploy(
        asked.path.service, asked.caller, wanted, wait=asked.query.wait, may_wake=may_wake
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
    # Otherwise nobody could unlock it again.
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


async def get_vault(asked: Asked[ServicePath, NoParameters, None]) -> Vault:
    return words.vault(asked.platform.services.get(asked.path.service, asked.caller))


async def set_vault(asked: Asked[ServicePath, NoParameters, SetVault]) -> Response:
    return await _change(asked.request, asked.path.service, dict(asked.body.secrets), replacing=True)


async def change_vault(asked: Asked[ServicePath, NoParameters, ChangeVault]) -> Response:
    return await _change(asked.request, asked.path.service, dict(asked.body.secrets), replacing=False)


async def wipe_vault(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return await _change(asked.request, asked.path.service, {}, replacing=True)


async def list_domains(asked: Asked[ServicePath, NoParameters, None]) -> DomainList:
    services = asked.platform.services
    claims = services.domains.list(services.get(asked.path.service, asked.caller))
    return DomainList.model_construct(domains=[words.domain(claim) for claim in claims])


async def claim_domain(asked: Asked[ServicePath, NoParameters, ClaimDomain]) -> Domain:
    claim = await asked.platform.services.domains.claim(asked.path.service, asked.caller, asked.body.domain)
    return words.domain(claim)


async def verify_domain(asked: Asked[DomainPath, NoParameters, None]) -> Domain:
    claim = await asked.platform.services.domains.verify(asked.path.service, asked.caller, asked.path.domain)
    return words.domain(claim)


async def remove_domain(asked: Asked[DomainPath, NoParameters, None]) -> Response:
    await asked.platform.services.domains.remove(asked.path.service, asked.caller, asked.path.domain)
    return nothing()


async def _change(
    request: Request, service: str, values: dict[str, str | None], *, replacing: bool
) -> Response:
    changed = await platform_of(request).services.change_vault(
        service, caller(request), values, replacing=replacing
    )
    return json_response(words.vault(changed))


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
    bind(operations.GET_SERVICE_VAULT, get_vault),
    bind(operations.SET_SERVICE_VAULT, set_vault),
    bind(operations.CHANGE_SERVICE_VAULT, change_vault),
    bind(operations.WIPE_SERVICE_VAULT, wipe_vault),
    bind(operations.LIST_SERVICE_DOMAINS, list_domains),
    bind(operations.CLAIM_SERVICE_DOMAIN, claim_domain),
    bind(operations.VERIFY_SERVICE_DOMAIN, verify_domain),
    bind(operations.REMOVE_SERVICE_DOMAIN, remove_domain),
)
