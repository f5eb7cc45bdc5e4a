"""Routes of previews of a sandbox's ports: create, list, revoke. `edges/proxy` serves the ports themselves.

The TLS edge asks here whether a name is ours before it obtains a certificate.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.ports.ports import Ports, without_port
from sandboxer.access.ports.previews import Preview
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import holds_scope
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.matcher import Binding
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.wire import previews as wire
from sandboxer.wire.operations import previews as operations
from sandboxer.wire.operations.declaration import NoParameters, Scope
from sandboxer.wire.operations.paths import PreviewPath, SandboxPath
from sandboxer.wire.operations.previews import AskForNameQuery
from sandboxer.wire.previews import CreatePreview, KnownName, PreviewList

TTL = timedelta(hours=24)
MAX_TTL = timedelta(days=90)


async def create(asked: Asked[SandboxPath, NoParameters, CreatePreview]) -> Response:
    ports, who = asked.platform.access.ports, asked.caller
    if asked.body.public and asked.body.one_time:
        raise InvalidRequest(field="one_time", why="a public preview has no link that could be used up")

    async def act() -> Response:
        made, token = await ports.previews.create(
            asked.path.sandbox_id,
            who,
            port=asked.body.port,
            ttl=_ttl(asked.body),
            is_public=asked.body.public,
            is_one_time=asked.body.one_time,
            wakes=await _wakes(asked.request, asked.body),
            hold_s=asked.body.hold_s,
        )
        return json_response(wire.NewPreview(**_facts(ports, made, token), token=token), 201)

    return await once(asked.request, act, keep_answer=False)


async def list_all(asked: Asked[SandboxPath, NoParameters, None]) -> PreviewList:
    ports = asked.platform.access.ports
    found = await ports.previews.list(asked.path.sandbox_id, asked.caller)
    return wire.PreviewList(previews=[wire.Preview(**_facts(ports, one)) for one in found])


async def revoke(asked: Asked[PreviewPath, NoParameters, None]) -> Response:
    await asked.platform.access.ports.previews.revoke(
        asked.path.sandbox_id, asked.path.preview_id, asked.caller
    )
    return nothing()


async def _wakes(request: Request, body: wire.CreatePreview) -> bool:
    """Decides whether a preview wakes the sandbox if the caller does not say: yes if the caller's key may
    wake it.
    """
    return await holds_scope(request, Scope.SANDBOXES_MANAGE) if body.wakes is None else body.wakes


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


async def ask(asked: Asked[NoParameters, AskForNameQuery, None]) -> KnownName:
    platform = asked.platform
    name = without_port(asked.query.domain)
    if name != urlsplit(platform.settings.url).hostname:
        found = await platform.access.ports.by_name(name, platform.settings.proxy_domain)
        if found is None:
            raise NotFound(what="name", id=name)
    return KnownName(domain=name)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_PREVIEW, create),
    bind(operations.LIST_PREVIEWS, list_all),
    bind(operations.REVOKE_PREVIEW, revoke),
    bind(operations.ASK_FOR_NAME, ask),
)
