"""Secrets of an account, and what of them is in a sandbox. No answer holds a value."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.secrets.injected import Injected
from sandboxer.access.secrets.placing import FOLDER
from sandboxer.access.secrets.use_cases import Injection, Wiped
from sandboxer.access.secrets.vault import SecretInfo
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.failures import failures, inside
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire import secrets as wire
from sandboxer.wire.words import SandboxId

router = APIRouter(tags=["secrets"])
OF_SANDBOX = "/v1/sandboxes/{sandbox_id}/secrets"


@router.get(
    "/v1/secrets",
    operation_id="listSecrets",
    response_model=wire.SecretList,
    responses=failures(),
    summary="Names of the account's secrets",
)
async def list_all(request: Request) -> Response:
    found = await platform_of(request).access.secrets.vault.list(caller(request))
    return json_response(wire.SecretList(secrets=[_secret(one) for one in found]))


@router.put(
    "/v1/secrets/{name}",
    operation_id="putSecret",
    response_model=wire.Secret,
    responses=failures(409),
    summary="Keep a secret, sealed; in place of one of this name",
)
async def put(request: Request, name: wire.SecretName, body: wire.PutSecret) -> Response:
    vault = platform_of(request).access.secrets.vault
    return json_response(_secret(await vault.put(name, body.value.get_secret_value(), caller(request))))


@router.delete(
    "/v1/secrets/{name}",
    operation_id="removeSecret",
    status_code=204,
    response_class=Response,
    responses=failures(404),
    summary="Forget it; sandboxes that have it keep it until it is wiped there",
)
async def remove(request: Request, name: wire.SecretName) -> Response:
    await platform_of(request).access.secrets.vault.remove(name, caller(request))
    return nothing()


@router.put(
    OF_SANDBOX,
    operation_id="injectSecrets",
    response_model=wire.InjectedSecretList,
    responses=inside(),
    summary="Give a sandbox secrets while everything in it goes on",
)
async def inject(request: Request, sandbox_id: SandboxId, body: wire.InjectSecrets) -> Response:
    wanted = Injection(
        names=list(dict.fromkeys(body.names)),
        values={name: value.get_secret_value() for name, value in body.values.items()},
        as_env=body.env,
        as_files=body.files,
    )
    secrets = platform_of(request).access.secrets
    return _injected(await secrets.inject(sandbox_id, caller(request), wanted))


@router.get(
    OF_SANDBOX,
    operation_id="listInjectedSecrets",
    response_model=wire.InjectedSecretList,
    responses=failures(404),
    summary="Names of what was injected",
)
async def list_injected(request: Request, sandbox_id: SandboxId) -> Response:
    return _injected(await platform_of(request).access.secrets.list(sandbox_id, caller(request)))


@router.delete(
    OF_SANDBOX,
    operation_id="wipeSecrets",
    response_model=wire.WipedSecrets,
    responses=inside(),
    summary="Wipe all: files removed, no command gets them any more",
)
async def wipe_all(request: Request, sandbox_id: SandboxId) -> Response:
    return _wiped(await platform_of(request).access.secrets.wipe(sandbox_id, caller(request)))


@router.delete(
    OF_SANDBOX + "/{name}",
    operation_id="wipeSecret",
    response_model=wire.WipedSecrets,
    responses=inside(),
    summary="Wipe one",
)
async def wipe(request: Request, sandbox_id: SandboxId, name: wire.SecretName) -> Response:
    return _wiped(await platform_of(request).access.secrets.wipe(sandbox_id, caller(request), name))


def _secret(info: SecretInfo) -> wire.Secret:
    return wire.Secret(
        name=info.name,
        size_bytes=info.size_bytes,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


def _injected(found: Sequence[Injected]) -> Response:
    listed = [
        wire.InjectedSecret(
            name=one.name,
            size_bytes=one.size_bytes,
            env=one.in_env,
            file=f"{FOLDER}/{one.name}" if one.in_file else None,
            injected_at=one.injected_at,
        )
        for one in found
    ]
    return json_response(wire.InjectedSecretList(secrets=listed))


def _wiped(done: Wiped) -> Response:
    return json_response(wire.WipedSecrets(wiped=list(done.names), may_still_hold=list(done.may_still_hold)))
