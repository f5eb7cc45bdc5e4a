"""Keys that open sandboxes by SSH, and where the gateway is. The gateway itself is `edges/ssh`."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.ssh.keys import SshKey
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import IdempotencyKey, once
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.wire import ssh as wire

router = APIRouter(tags=["ssh"])
MAX_TTL = timedelta(days=3650)


@router.get(
    "/v1/ssh",
    operation_id="getSshGateway",
    response_model=wire.SshGateway,
    responses=failures(),
    summary="Where to come in: ssh sbx_…@host -p port",
)
async def gateway(request: Request) -> Response:
    found = platform_of(request).access.ssh.gateway
    if found is None:
        raise NotAvailable(what="ssh", why="this platform has no SSH gateway (ssh_listen)")
    return json_response(
        wire.SshGateway(
            host=found.host, port=found.port, host_key=found.host_key, fingerprint=found.fingerprint
        )
    )


@router.post(
    "/v1/ssh-keys",
    operation_id="addSshKey",
    status_code=201,
    response_model=wire.SshKey,
    responses=failures(404, 409),
    summary="Let a public key open one sandbox, or all of the account's",
)
async def add(request: Request, body: wire.AddSshKey, idempotency_key: IdempotencyKey = None) -> Response:
    keys, who = platform_of(request).access.ssh.keys, caller(request)
    ttl = None if body.ttl is None else parse_duration(body.ttl, field="ttl")
    if ttl is not None and ttl > MAX_TTL:
        raise InvalidRequest(field="ttl", why=f"an SSH key lasts at most {MAX_TTL.days}d")

    async def act() -> Response:
        made = await keys.add(
            who, public_key=body.public_key, name=body.name, sandbox_id=body.sandbox_id, ttl=ttl
        )
        return json_response(_key(made), 201)

    return await once(request, act)


@router.get(
    "/v1/ssh-keys",
    operation_id="listSshKeys",
    response_model=wire.SshKeyList,
    responses=failures(),
    summary="The keys that stand, newest first",
)
async def list_all(request: Request) -> Response:
    found = await platform_of(request).access.ssh.keys.list(caller(request))
    return json_response(wire.SshKeyList(ssh_keys=[_key(one) for one in found]))


@router.delete(
    "/v1/ssh-keys/{key_id}",
    operation_id="revokeSshKey",
    status_code=204,
    response_class=Response,
    responses=failures(404),
    summary="Revoke it; what is open by it ends within a second",
)
async def revoke(request: Request, key_id: wire.SshKeyId) -> Response:
    await platform_of(request).access.ssh.keys.revoke(key_id, caller(request))
    return nothing()


def _key(key: SshKey) -> wire.SshKey:
    return wire.SshKey(
        id=key.id,
        name=key.name,
        algorithm=key.algorithm,
        public_key=key.public_key,
        fingerprint=key.fingerprint,
        sandbox_id=key.sandbox_id,
        created_at=key.created_at,
        expires_at=key.expires_at,
    )
