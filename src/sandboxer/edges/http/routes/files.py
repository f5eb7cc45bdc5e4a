"""Content of files: read with ranges, written as a stream, removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.backends.guest import FileInfo as GuestFile
from sandboxer.backends.guest import FileKind
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.disconnect import ClientGone
from sandboxer.edges.http.downloads import Download
from sandboxer.edges.http.failures import Responses, inside, octets
from sandboxer.edges.http.queries import exact, path_of
from sandboxer.edges.http.ranges import NotSatisfiable, span
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.errors import IsADirectory, NotARegularFile
from sandboxer.wire.files import FileInfo, FileMode, FilePage, MakeDirectory, MoveFile, RemoveFile
from sandboxer.wire.words import MAX_PATH_BYTES, PAGE_LIMIT_MAX, Cursor, SandboxId
from sandboxer.work.files import MAX_DEPTH

# Files of a listing that are put into words before others get their turn: about a millisecond.
AT_A_TIME = 50
router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/files", tags=["files"])
# Declared for the document and its bounds; its exact bytes are read by `path_of`.
QueryPath = Annotated[
    str,
    Query(
        min_length=1,
        max_length=MAX_PATH_BYTES - 1,
        pattern=r"^/[^\x00]*$",
        description="Absolute path; any bytes but NUL, percent-encoded.",
        examples=["/workspace/main.py"],
    ),
]
RangeHeader = Annotated[str | None, Header(max_length=200, description="One range, as `bytes=0-99`.")]
_CONTENT: Responses = {
    200: octets("The file."),
    206: octets("The part that was asked for."),
}
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get(
    "/content",
    operation_id="readFile",
    status_code=200,
    response_class=Download,
    responses={**inside(403, 416), **_CONTENT},
    summary="Read a file, or a part of it",
)
async def read(
    request: Request, sandbox_id: SandboxId, path: QueryPath, range: RangeHeader = None
) -> Response:
    info = await _regular(request, sandbox_id)
    try:
        part = span(_range_if_unchanged(request, range, info), info.size)
    except NotSatisfiable:
        return _bad_range(request, info.size)
    headers = _headers(info)
    if part.is_part:
        headers["content-range"] = part.content_range(info.size)
    source = platform_of(request).work.files.read(
        sandbox_id, caller(request), path_of(request.scope), offset=part.offset, length=part.length
    )
    status = 206 if part.is_part else 200
    return Download(
        source, headers=headers, media_type="application/octet-stream", status=status, length=part.length
    )


@router.head(
    "/content",
    operation_id="headFile",
    responses={**inside(403), 200: {"description": "Size and time of the file, in headers."}},
    summary="Size of a file",
)
async def head(request: Request, sandbox_id: SandboxId, path: QueryPath) -> Response:
    info = await _regular(request, sandbox_id)
    headers = {**_headers(info), "content-length": str(info.size)}
    return Response(headers=headers, media_type="application/octet-stream")


@router.put(
    "/content",
    operation_id="writeFile",
    response_model=FileInfo,
    responses=inside(403),
    openapi_extra=_UPLOAD,
    summary="Write a file; it is replaced only when the whole body arrived",
)
async def write(
    request: Request,
    sandbox_id: SandboxId,
    path: QueryPath,
    mode: Annotated[FileMode | None, Query(description="Permission bits, as a decimal number.")] = None,
    parents: Annotated[bool, Query(description="Make missing folders.")] = True,
) -> Response:
    try:
        info = await platform_of(request).work.files.write(
            sandbox_id, caller(request), path_of(request.scope), body_of(request), mode=mode, parents=parents
        )
    except TooSlow:
        return problems.framework_response(
            408, "The body came too slowly.", problems.request_id_of(request.scope), {"connection": "close"}
        )
    return json_response(answers.file(info))


@router.delete(
    "/content",
    operation_id="deleteFile",
    status_code=204,
    responses=inside(403),
    summary="Remove a file or folder",
)
async def delete(
    request: Request,
    sandbox_id: SandboxId,
    path: QueryPath,
    recursive: Annotated[bool, Query(description="Also a folder with content.")] = False,
) -> Response:
    await platform_of(request).work.files.remove(
        sandbox_id, caller(request), path_of(request.scope), recursive=recursive
    )
    return nothing()


@router.get(
    "",
    operation_id="listFiles",
    response_model=FilePage,
    responses=inside(403),
    summary="List a folder, by path",
)
async def list_files(
    request: Request,
    sandbox_id: SandboxId,
    path: QueryPath,
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="1: the folder itself.")] = 1,
    cursor: Annotated[Cursor | None, Query(max_length=8192, pattern=r"^[A-Za-z0-9_-]{1,8192}$")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX * 10)] = PAGE_LIMIT_MAX,
) -> Response:
    page = await platform_of(request).work.files.list(
        sandbox_id, caller(request), path_of(request.scope), depth=depth, cursor=cursor, limit=limit
    )
    shown = []
    for number, info in enumerate(page.files, 1):
        shown.append(answers.file(info))
        if number % AT_A_TIME == 0:
            await asyncio.sleep(0)
    return json_response(FilePage.model_construct(files=shown, next_cursor=page.next_cursor))


@router.get(
    "/stat",
    operation_id="statFile",
    response_model=FileInfo,
    responses=inside(403),
    summary="Look at a file, folder or link",
)
async def stat(
    request: Request,
    sandbox_id: SandboxId,
    path: QueryPath,
    follow: Annotated[bool, Query(description="False: of a link itself.")] = True,
) -> Response:
    info = await platform_of(request).work.files.stat(
        sandbox_id, caller(request), path_of(request.scope), follow=follow
    )
    return json_response(answers.file(info))


@router.post(
    "/mkdir",
    operation_id="makeDirectory",
    status_code=204,
    responses=inside(403),
    summary="Make a folder",
)
async def mkdir(request: Request, sandbox_id: SandboxId, body: MakeDirectory) -> Response:
    await platform_of(request).work.files.mkdir(
        sandbox_id,
        caller(request),
        exact(body.path, body.path_encoding),
        mode=body.mode,
        parents=body.parents,
    )
    return nothing()


@router.post(
    "/move", operation_id="moveFile", status_code=204, responses=inside(403), summary="Move or rename"
)
async def move(request: Request, sandbox_id: SandboxId, body: MoveFile) -> Response:
    await platform_of(request).work.files.move(
        sandbox_id,
        caller(request),
        exact(body.source, body.path_encoding),
        exact(body.target, body.path_encoding),
        overwrite=body.overwrite,
    )
    return nothing()


@router.post(
    "/remove",
    operation_id="removeFile",
    status_code=204,
    responses=inside(403),
    summary="Remove a file or folder",
)
async def remove(request: Request, sandbox_id: SandboxId, body: RemoveFile) -> Response:
    await platform_of(request).work.files.remove(
        sandbox_id, caller(request), exact(body.path, body.path_encoding), recursive=body.recursive
    )
    return nothing()


async def body_of(request: Request) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises at its end if it is not the one that was signed."""
    receive = request.receive
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


async def _regular(request: Request, sandbox_id: str) -> GuestFile:
    path = path_of(request.scope)
    info = await platform_of(request).work.files.stat(sandbox_id, caller(request), path)
    if info.kind is FileKind.DIRECTORY:
        raise IsADirectory(path=path, errno_name="EISDIR", hint="List it, or read it as tar.")
    if info.kind is not FileKind.FILE:
        raise NotARegularFile(path=path, errno_name="EINVAL")
    return info


def _headers(info: GuestFile) -> dict[str, str]:
    return {
        "accept-ranges": "bytes",
        "etag": _etag(info),
        "last-modified": formatdate(answers.moment(info.modified_at).timestamp(), usegmt=True),
    }


def _etag(info: GuestFile) -> str:
    return f'"{int(info.modified_at * 1e9):x}-{info.size:x}"'


def _range_if_unchanged(request: Request, range_: str | None, info: GuestFile) -> str | None:
    condition = request.headers.get("if-range")
    return range_ if condition is None or condition == _etag(info) else None


def _bad_range(request: Request, size: int) -> Response:
    headers = {"content-range": f"bytes */{size}"}
    request_id = problems.request_id_of(request.scope)
    return problems.framework_response(416, f"The file has {size} bytes.", request_id, headers)
