"""Translates records of services into models of the wire, and models of the wire into what the services
package takes.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from sandboxer.edges.http.answers import attached_volume
from sandboxer.edges.http.requests import platform_of, wanted_resources
from sandboxer.edges.http.routes.processes import bytes_of
from sandboxer.kernel.budget import Lease
from sandboxer.sandboxes.charges.charging import rate_now
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.wire import services as wire
from sandboxer.work.services import records
from sandboxer.work.services.deployment import PROFILE
from sandboxer.work.services.domains import WELL_KNOWN
from sandboxer.work.services.logs import Line
from sandboxer.work.services.specs import Health, NewFile, NewService, Policy, Redeploy, Restart, Spec


async def wanted(body: wire.CreateService, lease: Lease) -> NewService:
    spec = Spec(
        bootstrap=body.bootstrap,
        command=body.command,
        cwd=body.cwd,
        user=body.user,
        env=dict(body.env),
        port=body.port,
        health=Health(**body.health.model_dump()),
        restart=_restart(body.restart),
        idle_s=body.idle_s,
        wakes=body.wake,
        is_public=body.public,
        drain_s=body.drain_s,
        stop_timeout_s=body.stop_timeout_s,
    )
    sandbox = CreateRequest(
        profile=body.profile or PROFILE,
        image=body.image,
        trust=body.trust,
        ttl=body.ttl,
        resources=wanted_resources(body.resources),
        labels=body.labels,
        quote_id=body.quote_id,
    )
    files = await _files(body.files, lease)
    return NewService(name=body.name, spec=spec, sandbox=sandbox, files=files, secrets=dict(body.secrets))


def changed(spec: Spec, body: wire.ChangeService) -> Spec:
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


async def redeploy(body: wire.RedeployService, lease: Lease) -> Redeploy:
    return Redeploy(
        bootstrap=body.bootstrap,
        command=body.command,
        env=None if body.env is None else dict(body.env),
        files=await _files(body.files, lease),
    )


def shown(request: Request, service: records.Service) -> wire.Service:
    platform = platform_of(request)
    spec, services, where = service.spec, platform.services, platform.access.ports.where
    sandbox = services.glance(service)
    host = services.host(service)
    proven = [claim.domain for claim in services.domains.list(service) if claim.verified_at is not None]
    return wire.Service.model_construct(
        id=service.id,
        name=service.name,
        sandbox_id=service.sandbox_id,
        state=service.state.value,
        reason=service.reason,
        state_since=service.state_since,
        host=host,
        url=None if where is None else where.url(host),
        domains=proven,
        public=spec.is_public,
        port=service.port,
        run=service.run,
        crashes=len(service.crashes),
        restart_at=service.restart_at,
        command=spec.command,
        bootstrap=spec.bootstrap,
        cwd=spec.cwd,
        user=spec.user,
        env=dict(spec.env),
        secrets=list(service.vault_names),
        fixed_port=spec.port,
        health=wire.HealthView.model_construct(
            path=spec.health.path,
            interval_s=spec.health.interval_s,
            timeout_s=spec.health.timeout_s,
            threshold=spec.health.threshold,
            start_timeout_s=spec.health.start_timeout_s,
        ),
        restart=wire.RestartView.model_construct(
            policy=spec.restart.policy.value,
            backoff_s=spec.restart.backoff_s,
            backoff_max_s=spec.restart.backoff_max_s,
            max_crashes=spec.restart.max_crashes,
            window_s=spec.restart.window_s,
        ),
        idle_s=spec.idle_s,
        wake=spec.wakes,
        drain_s=spec.drain_s,
        stop_timeout_s=spec.stop_timeout_s,
        vcpus=None if sandbox is None else sandbox.resources.vcpus,
        memory_mb=None if sandbox is None else sandbox.resources.memory_mb,
        volumes=[] if sandbox is None else [attached_volume(one) for one in sandbox.volumes],
        locked_at=None if sandbox is None else sandbox.locked_at,
        created_at=service.created_at,
        deployed_at=service.deployed_at,
        expires_at=None if sandbox is None else sandbox.expires_at,
        rate_msats_per_s=0 if sandbox is None else rate_now(sandbox),
    )


def line(kept: Line) -> wire.LogLine:
    return wire.LogLine.model_construct(
        number=kept.number, at=kept.at, run=kept.run, stream=kept.stream, text=kept.text
    )


def domain(claim: records.Domain) -> wire.Domain:
    return wire.Domain.model_construct(
        domain=claim.domain,
        token=claim.token,
        proof_url=f"http://{claim.domain}{WELL_KNOWN}",
        verified=claim.verified_at is not None,
        verified_at=claim.verified_at,
        failing_since=claim.failing_since,
    )


def vault(service: records.Service) -> wire.Vault:
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
