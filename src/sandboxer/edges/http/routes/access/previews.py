"""Previews of a sandbox's ports: make, list, revoke. The ports themselves are served by `edges/proxy`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.ports.ports import Ports
from sandboxer.access.ports.tokens import Preview
from sandboxer.accounts.scopes import Scope
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import IdempotencyKey, once
from sandboxer.edges.http.key_scopes import demand_scope, holds_scope
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire import previews as wire
from sandboxer.wire.words import SandboxId

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/previews", tags=["previews"])
TTL = timedelta(hours=24)
MAX_TTL = timedelta(days=90)


@router.post(
    "",
    operation_id="createPreview",
    status_code=201,
    response_model=wire.NewPreview,
    responses=failures(404, 409),
    summary="An address that opens a port inside; its token is shown once",
)
async def create(
    request: Request,
    sandbox_id: SandboxId,
    body: wire.CreatePreview,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    ports, who = platform_of(request).access.ports, caller(request)
    if body.public and body.one_time:
        raise InvalidRequest(field="one_time", why="a public preview has no link that could be used up")

    async def act() -> Response:
        made, token = await ports.previews.create(
            sandbox_id,
            who,
            port=body.port,
            ttl=_ttl(body),
            is_public=body.public,
            is_one_time=body.one_time,
            wakes=await _wakes(request, body),
            hold_s=body.hold_s,
        )
        return json_response(wire.NewPreview(**_facts(ports, made, token), token=token), 201)

    return await once(request, act, keep_answer=False)


@router.get(
    "",
    operation_id="listPreviews",
    response_model=wire.PreviewList,
    responses=failures(404),
    summary="The previews that stand, newest first",
)
async def list_all(request: Request, sandbox_id: SandboxId) -> Response:
    ports = platform_of(request).access.ports
    found = await ports.previews.list(sandbox_id, caller(request))
    return json_response(wire.PreviewList(previews=[wire.Preview(**_facts(ports, one)) for one in found]))


@router.delete(
    "/{preview_id}",
    operation_id="revokePreview",
    status_code=204,
    response_class=Response,
    responses=failures(404),
    summary="Close it again, for its cookies too",
)
async def revoke(request: Request, sandbox_id: SandboxId, preview_id: wire.PreviewId) -> Response:
    await platform_of(request).access.ports.previews.revoke(sandbox_id, preview_id, caller(request))
    return nothing()


async def _wakes(request: Request, body: wire.CreatePreview) -> bool:
    """Whoever opens it spends by waking: no key gives away what it may not do itself."""
    if body.wakes is None:
        return await holds_scope(request, Scope.SANDBOXES_MANAGE)
    if body.wakes:
        await demand_scope(request, Scope.SANDBOXES_MANAGE)
    return body.wakes


def _ttl(body: wire.CreatePreview) -> timedelta | None:
    if body.ttl is None:
        return None if body.public else TTL
    ttl = parse_duration(body.ttl, field="ttl")
    if ttl > MAX_TTL:
        raise InvalidRequest(field="ttl", why=f"a preview lasts at most {MAX_TTL.days}d")
    return ttl


def _facts(ports: Ports, preview: Preview, token: str | None = None) -> dict[str, Any]:
    return {
        "id": preview.id,
        "sandbox_id": preview.sandbox_id,
        "port": preview.port,
        "public": preview.is_public,
        "one_time": preview.is_one_time,
        "wakes": preview.wakes,
        "hold_s": preview.hold_s,
        "created_at": preview.created_at,
        "expires_at": preview.expires_at,
        "used_at": preview.used_at,
        "url": ports.url(preview, token),
    }
