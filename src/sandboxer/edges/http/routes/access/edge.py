"""What the TLS edge asks before it fetches a certificate: is this name ours?"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.ports.hosts import without_port
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import unsigned_failures
from sandboxer.edges.http.state import platform_of
from sandboxer.kernel.errors import NotFound
from sandboxer.wire.previews import KnownName

router = APIRouter(prefix="/v1/edge", tags=["previews"])


@router.get(
    "/ask",
    operation_id="askForName",
    response_model=KnownName,
    responses=unsigned_failures(404, 422),
    summary="Is a host name served here? (for the TLS edge)",
)
async def ask(
    request: Request, domain: Annotated[str, Query(min_length=1, max_length=253, pattern=r"^[\x21-\x7e]+$")]
) -> Response:
    platform = platform_of(request)
    name = without_port(domain)
    if name != urlsplit(platform.settings.url).hostname:
        found = await platform.access.ports.by_name(name, platform.settings.proxy_domain)
        if found is None:
            raise NotFound(what="name", id=name)
    return json_response(KnownName(domain=name))
