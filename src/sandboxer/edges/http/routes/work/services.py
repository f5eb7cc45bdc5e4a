"""Routes of services: create, show, change, redeploy, put to sleep, remove, read logs; and their vaults and
domains.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.clones import is_image_id
from sandboxer.edges.http.answers import attached_volume, exposure, from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedPathBody, AskedQuery, Handler, bind
from sandboxer.edges.http.bodies import EventStream, ServerEvent
from sandboxer.edges.http.demands import confirm_locked, gate_proof, holds_scope, offering
from sandboxer.edges.http.idempotency import Bind, make_once
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.requests import caller, from_body, platform_of, wanted_resources, wanted_volumes
from sandboxer.edges.http.routes.work.processes import bytes_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.sandboxes.charging import rate_now
from sandboxer.sandboxes.exposure import Inspect
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import boosts, locks
from sandboxer.wire import services as wire
from sandboxer.wire.operations import services as operations
from sandboxer.wire.operations.declaration import NoParameters, Scope
from sandboxer.work.services import records
from sandboxer.work.services.deployment import PROFILE, price_request
from sandboxer.work.services.domains import WELL_KNOWN
from sandboxer.work.services.lifecycle import (
    Health,
    NewFile,
    NewService,
    Policy,
    Redeploy,
    Restart,
    Spec,
    State,
)
from sandboxer.work.services.logs import Line, ServiceLog
from sandboxer.work.services.use_cases import ServiceUseCases


async def create(asked: Asked[NoParameters, operations.WaitQuery, wire.CreateService]) -> Response:
    platform, who = asked.platform, asked.caller
    wanted = await wanted_service(asked.body, asked.lease)

    async def make(bind: Bind | None) -> records.Service:
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
            return await platform.services.create(having, who, wait=asked.query.wait, also=bind)

    recall = partial(platform.services.recall, wait=asked.query.wait)
    return await make_once(asked.request, make, recall, partial(_created, asked.request))


async def _note_use(request: Request, body: wire.CreateService) -> None:
    platform, who = platform_of(request), caller(request)
    if body.snapshot is not None:
        await note_use(platform, who, "snapshot", body.snapshot, "clone")
    elif body.image is not None and is_image_id(body.image):
        await note_use(platform, who, "image", body.image, "spawn")


async def list_services(asked: AskedQuery[operations.ListServicesQuery]) -> wire.ServicePage:
    page = await asked.platform.services.list(
        asked.caller,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [shown_service(asked.request, service) for service in page.records]
    return wire.ServicePage.model_construct(services=shown, next_cursor=page.next_cursor)


async def get(asked: Asked[operations.ServicePath]) -> Response:
    return _answer(asked.request, asked.platform.services.get(asked.path.service, asked.caller))


async def change(asked: Asked[operations.ServicePath, operations.WaitQuery, wire.ChangeService]) -> Response:
    services, who = asked.platform.services, asked.caller
    spec = changed_spec(services.get(asked.path.service, who).spec, asked.body)
    changed = await services.change(
        asked.path.service, who, spec, wait=asked.query.wait, inspect=_inspect(asked.body.inspect)
    )
    if asked.body.vcpus == 0:
        await boosts.unboost(asked.platform.sandboxes, changed.sandbox_id, who)
    elif asked.body.vcpus is not None:
        await boosts.boost(asked.platform.sandboxes, changed.sandbox_id, who, vcpus=asked.body.vcpus)
    return _answer(asked.request, changed)


async def remove(asked: Asked[operations.ServicePath]) -> Response:
    services, who = asked.platform.services, asked.caller
    found = services.get(asked.path.service, who)
    is_confirmed = await confirm_locked(asked.request, await services.sandbox(found), action="destroy")
    return _answer(asked.request, await services.remove(found.id, who, despite_lock=is_confirmed))


async def redeploy(
    asked: Asked[operations.ServicePath, operations.WaitQuery, wire.RedeployService],
) -> Response:
    services = asked.platform.services
    # A sleeping one is woken for it, which costs.
    may_wake = await holds_scope(asked.request, Scope.SANDBOXES_MANAGE)
    wanted = await wanted_redeploy(asked.body, asked.lease)
    done = await services.redeploy(
        asked.path.service, asked.caller, wanted, wait=asked.query.wait, may_wake=may_wake
    )
    return _answer(asked.request, done)


def _verb(
    act: Callable[[ServiceUseCases, str, Caller], Awaitable[records.Service]],
) -> Handler[operations.ServicePath]:
    """Returns the handler of a verb that needs the service and its caller, and answers with the service."""

    async def handle(asked: Asked[operations.ServicePath]) -> Response:
        services = asked.platform.services
        return _answer(asked.request, await act(services, asked.path.service, asked.caller))

    return handle


async def start(asked: Asked[operations.ServicePath, operations.WaitQuery]) -> Response:
    services = asked.platform.services
    return _answer(
        asked.request, await services.start(asked.path.service, asked.caller, wait=asked.query.wait)
    )


async def lock(asked: Asked[operations.ServicePath]) -> Response:
    platform, who = asked.platform, asked.caller
    found = platform.services.get(asked.path.service, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    await locks.lock(platform.sandboxes, found.sandbox_id, who)
    return _answer(asked.request, found)


async def unlock(asked: Asked[operations.ServicePath]) -> Response:
    platform, who = asked.platform, asked.caller
    found = platform.services.get(asked.path.service, who)
    await confirm_locked(asked.request, await platform.services.sandbox(found), action="unlock")
    await locks.unlock(platform.sandboxes, found.sandbox_id, who)
    return _answer(asked.request, found)


async def logs(asked: Asked[operations.ServicePath, operations.ReadServiceLogsQuery]) -> Response:
    log = asked.platform.services.log(asked.path.service, asked.caller)
    seen = asked.query.after if asked.query.last_event_id is None else int(asked.query.last_event_id)
    begin = max(seen or 0, log.last - (wire.LOG_TAIL_MAX if seen is not None else asked.query.tail))
    if asked.query.follow:
        return EventStream(_lines(log.follow(begin)), begin_at_once=True)
    return Response(await _page(log, begin, asked.lease), media_type="application/json")


async def _page(log: ServiceLog, after: int, lease: Lease) -> bytes:
    """Returns the lines with a greater number as a LogPage, made in slices."""
    lines, end, began = [], log.last, time.monotonic()
    while after < end and (batch := log.batch(after)):
        shown = (from_record(wire.LogLine, line) for line in batch)
        piece = b",".join(line.model_dump_json().encode() for line in shown)
        await lease.grow(len(piece))
        lines.append(piece)
        after = batch[-1].number
        await lease.in_turn(time.monotonic() - began)
        began = time.monotonic()
    return b'{"lines":[' + b",".join(lines) + b"]}"


async def _lines(source: AsyncIterator[Line]) -> AsyncIterator[ServerEvent]:
    async with aclosing(source) as lines:  # type: ignore[type-var]
        async for line in lines:
            yield ServerEvent("line", from_record(wire.LogLine, line), str(line.number))


def _created(request: Request, made: records.Service) -> Response:
    return json_response(shown_service(request, made), 201, location=f"/v1/services/{made.id}")


def _answer(request: Request, service: records.Service) -> Response:
    return json_response(shown_service(request, service))


async def get_vault(asked: Asked[operations.ServicePath]) -> wire.Vault:
    return shown_vault(asked.platform.services.get(asked.path.service, asked.caller))


async def set_vault(asked: AskedPathBody[operations.ServicePath, wire.SetVault]) -> Response:
    return await _change(asked.request, asked.path.service, dict(asked.body.secrets), replacing=True)


async def change_vault(asked: AskedPathBody[operations.ServicePath, wire.ChangeVault]) -> Response:
    return await _change(asked.request, asked.path.service, dict(asked.body.secrets), replacing=False)


async def wipe_vault(asked: Asked[operations.ServicePath]) -> Response:
    return await _change(asked.request, asked.path.service, {}, replacing=True)


async def list_domains(asked: Asked[operations.ServicePath]) -> wire.DomainList:
    services = asked.platform.services
    claims = services.domains.list(services.get(asked.path.service, asked.caller))
    return wire.DomainList.model_construct(domains=[shown_domain(claim) for claim in claims])


async def claim_domain(asked: AskedPathBody[operations.ServicePath, wire.ClaimDomain]) -> wire.Domain:
    claim = await asked.platform.services.domains.claim(asked.path.service, asked.caller, asked.body.domain)
    return shown_domain(claim)


async def verify_domain(asked: Asked[operations.DomainPath]) -> wire.Domain:
    claim = await asked.platform.services.domains.verify(asked.path.service, asked.caller, asked.path.domain)
    return shown_domain(claim)


async def remove_domain(asked: Asked[operations.DomainPath]) -> None:
    await asked.platform.services.domains.remove(asked.path.service, asked.caller, asked.path.domain)


async def _change(
    request: Request, service: str, values: dict[str, str | None], *, replacing: bool
) -> Response:
    changed = await platform_of(request).services.change_vault(
        service, caller(request), values, replacing=replacing
    )
    return json_response(shown_vault(changed))


async def wanted_service(body: wire.CreateService, lease: Lease) -> NewService:
    spec = from_body(
        Spec,
        body,
        env=dict(body.env),
        health=Health(**body.health.model_dump()),
        restart=_restart(body.restart),
        wakes=body.wake,
        is_public=body.public,
    )
    sandbox = CreateRequest(
        profile=body.profile or PROFILE,
        image=body.image,
        trust=body.trust,
        network=body.network,
        ttl=body.ttl,
        resources=wanted_resources(body.resources),
        labels=body.labels,
        quote_id=body.quote_id,
    )
    files = await _files(body.files, lease)
    return NewService(
        name=body.name,
        spec=spec,
        sandbox=sandbox,
        files=files,
        secrets=dict(body.secrets),
        inspect=_inspect(body.inspect),
    )


def _inspect(wanted: Literal["refuse", "warn", "no"] | None) -> Inspect | None:
    return None if wanted is None else Inspect(wanted)


def changed_spec(spec: Spec, body: wire.ChangeService) -> Spec:
    plain = {
        "idle_s": body.idle_s,
        "wakes": body.wake,
        "is_public": body.public,
        "drain_s": body.drain_s,
        "stop_timeout_s": body.stop_timeout_s,
        "env": None if body.env is None else dict(body.env),
        "health": None if body.health is None else Health(**body.health.model_dump()),
        "restart": None if body.restart is None else _restart(body.restart),
    }
    spec = replace(spec, **{name: value for name, value in plain.items() if value is not None})  # type: ignore[arg-type]
    return spec if body.port is None else replace(spec, port=body.port or None)


async def wanted_redeploy(body: wire.RedeployService, lease: Lease) -> Redeploy:
    return Redeploy(
        bootstrap=body.bootstrap,
        command=body.command,
        env=None if body.env is None else dict(body.env),
        files=await _files(body.files, lease),
    )


def shown_service(request: Request, service: records.Service) -> wire.Service:
    platform = platform_of(request)
    spec, services, where = service.spec, platform.services, platform.access.ports.where
    sandbox = services.glance(service)
    host = services.host(service)
    proven = [claim.domain for claim in services.domains.list(service) if claim.verified_at is not None]
    return from_record(
        wire.Service,
        service,
        host=host,
        url=None if where is None else where.url(host),
        domains=proven,
        public=spec.is_public,
        crashes=len(service.crashes),
        command=spec.command,
        bootstrap=spec.bootstrap,
        cwd=spec.cwd,
        user=spec.user,
        env=dict(spec.env),
        secrets=list(service.vault_names),
        fixed_port=spec.port,
        health=from_record(wire.HealthView, spec.health),
        restart=from_record(wire.RestartView, spec.restart),
        idle_s=spec.idle_s,
        wake=spec.wakes,
        drain_s=spec.drain_s,
        stop_timeout_s=spec.stop_timeout_s,
        vcpus=None if sandbox is None else sandbox.resources.vcpus,
        memory_mb=None if sandbox is None else sandbox.resources.memory_mb,
        volumes=[] if sandbox is None else [attached_volume(one) for one in sandbox.volumes],
        locked_at=None if sandbox is None else sandbox.locked_at,
        expires_at=None if sandbox is None else sandbox.expires_at,
        rate_msats_per_s=0 if sandbox is None else rate_now(sandbox),
        exposure=None if (found := services.exposure(service)) is None else exposure(found),
    )


def shown_domain(claim: records.Domain) -> wire.Domain:
    return from_record(
        wire.Domain,
        claim,
        proof_url=f"http://{claim.domain}{WELL_KNOWN}",
        verified=claim.verified_at is not None,
    )


def shown_vault(service: records.Service) -> wire.Vault:
    at, launched_at = service.vault_at, service.launched_at
    return wire.Vault.model_construct(
        names=list(service.vault_names),
        updated_at=at,
        in_use=launched_at is not None and (at is None or at <= launched_at),
    )


def _restart(body: wire.Restart) -> Restart:
    return Restart(**{**body.model_dump(), "policy": Policy(body.policy)})


async def _files(files: list[wire.ServiceFile], lease: Lease) -> tuple[NewFile, ...]:
    read = []
    for number, file in enumerate(files):
        content = await bytes_of(file.content, file.encoding, lease, field=f"files.{number}.content")
        read.append(NewFile(path=file.path, content=content, mode=file.mode))
    return tuple(read)


freeze, thaw = _verb(ServiceUseCases.freeze), _verb(ServiceUseCases.thaw)
BINDINGS = (
    bind(operations.CREATE_SERVICE, create),
    bind(operations.LIST_SERVICES, list_services),
    bind(operations.GET_SERVICE, get),
    bind(operations.CHANGE_SERVICE, change),
    bind(operations.REMOVE_SERVICE, remove),
    bind(operations.REDEPLOY_SERVICE, redeploy),
    bind(operations.FREEZE_SERVICE, freeze),
    bind(operations.THAW_SERVICE, thaw),
    bind(operations.STOP_SERVICE, _verb(ServiceUseCases.stop)),
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
