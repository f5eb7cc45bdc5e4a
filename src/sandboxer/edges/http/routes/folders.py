"""Whole folders: watched for changes, and as tar in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.backends.guest import FileEvent
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.downloads import Download
from sandboxer.edges.http.failures import inside, octets, stream
from sandboxer.edges.http.queries import path_of
from sandboxer.edges.http.routes.files import QueryPath, body_of
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.files import TarUnpacked, WatchReady
from sandboxer.wire.words import SandboxId

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/files", tags=["files"])
TAR = "application/x-tar"
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {TAR: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get(
    "/watch",
    operation_id="watchFiles",
    status_code=200,
    response_class=EventStream,
    responses={**inside(403), 200: stream("`ready`, then a `change` for each change, or `error`.")},
    summary="Changes in a folder, as they happen",
)
async def watch(
    request: Request,
    sandbox_id: SandboxId,
    path: QueryPath,
    recursive: Annotated[bool, Query(description="Also in folders below.")] = False,
) -> Response:
    where = path_of(request.scope)
    source = platform_of(request).work.files.watch(sandbox_id, caller(request), where, recursive=recursive)
    return EventStream(_changes(source, where, recursive))


@router.get(
    "/tar",
    operation_id="packFolder",
    status_code=200,
    response_class=Download,
    responses={**inside(403), 200: octets("A tar of the folder's content, or of the one file.", TAR)},
    summary="A folder as tar",
)
async def pack(request: Request, sandbox_id: SandboxId, path: QueryPath) -> Response:
    source = platform_of(request).work.archives.pack(sandbox_id, caller(request), path_of(request.scope))
    return Download(source, headers={}, media_type=TAR)


@router.put(
    "/tar",
    operation_id="unpackFolder",
    response_model=TarUnpacked,
    responses=inside(403),
    openapi_extra=_UPLOAD,
    summary="Unpack a tar into a folder, once all of it arrived",
)
async def unpack(request: Request, sandbox_id: SandboxId, path: QueryPath) -> Response:
    where = path_of(request.scope)
    try:
        received = await platform_of(request).work.archives.unpack(
            sandbox_id, caller(request), where, body_of(request)
        )
    except TooSlow:
        return problems.framework_response(
            408, "The body came too slowly.", problems.request_id_of(request.scope), {"connection": "close"}
        )
    return json_response(TarUnpacked(path=answers.printable(where), received_bytes=received))


async def _changes(
    source: AsyncIterator[FileEvent | None], path: str, recursive: bool
) -> AsyncIterator[ServerEvent]:
    async with aclosing(source) as changes:  # type: ignore[type-var]
        async for change in changes:
            if change is None:
                yield ServerEvent("ready", WatchReady(path=answers.printable(path), recursive=recursive))
            else:
                yield ServerEvent("change", answers.file_event(change))
