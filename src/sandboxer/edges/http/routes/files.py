"""Content of files: read with ranges, written as a stream, removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.utils import formatdate

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.backends.guest import FileInfo as GuestFile
from sandboxer.backends.guest import FileKind
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.disconnect import ClientGone
from sandboxer.edges.http.downloads import Download
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.queries import exact, path_of
from sandboxer.edges.http.ranges import NotSatisfiable, span
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.errors import IsADirectory, NotARegularFile
from sandboxer.wire.files import FileInfo, FilePage, MakeDirectory, MoveFile, RemoveFile
from sandboxer.wire.operations import files as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.files import (
    DeleteFileQuery,
    HeadFileQuery,
    ListFilesQuery,
    ReadFileQuery,
    StatFileQuery,
    WriteFileQuery,
)
from sandboxer.wire.operations.paths import SandboxPath

# Files of a listing that are put into words before others get their turn: about a millisecond.
AT_A_TIME = 50


async def read(asked: Asked[SandboxPath, ReadFileQuery, None]) -> Response:
    info = await _regular(asked.request, asked.path.sandbox_id)
    try:
        part = span(_range_if_unchanged(asked.request, asked.query.range, info), info.size)
    except NotSatisfiable:
        return _bad_range(asked.request, info.size)
    headers = _headers(info)
    if part.is_part:
        headers["content-range"] = part.content_range(info.size)
    source = asked.platform.work.files.read(
        asked.path.sandbox_id,
        asked.caller,
        path_of(asked.request.scope),
        offset=part.offset,
        length=part.length,
    )
    status = 206 if part.is_part else 200
    return Download(
        source, headers=headers, media_type="application/octet-stream", status=status, length=part.length
    )


async def head(asked: Asked[SandboxPath, HeadFileQuery, None]) -> Response:
    info = await _regular(asked.request, asked.path.sandbox_id)
    headers = {**_headers(info), "content-length": str(info.size)}
    return Response(headers=headers, media_type="application/octet-stream")


async def write(asked: Asked[SandboxPath, WriteFileQuery, None]) -> Response:
    try:
        info = await asked.platform.work.files.write(
            asked.path.sandbox_id,
            asked.caller,
            path_of(asked.request.scope),
            body_of(asked.request),
            mode=asked.query.mode,
            parents=asked.query.parents,
        )
    except TooSlow:
        return problems.framework_response(
            408,
            "The body came too slowly.",
            problems.request_id_of(asked.request.scope),
            {"connection": "close"},
        )
    return json_response(answers.file(info))


async def delete(asked: Asked[SandboxPath, DeleteFileQuery, None]) -> Response:
    await asked.platform.work.files.remove(
        asked.path.sandbox_id, asked.caller, path_of(asked.request.scope), recursive=asked.query.recursive
    )
    return nothing()


async def list_files(asked: Asked[SandboxPath, ListFilesQuery, None]) -> FilePage:
    page = await asked.platform.work.files.list(
        asked.path.sandbox_id,
        asked.caller,
        path_of(asked.request.scope),
        depth=asked.query.depth,
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = []
    for number, info in enumerate(page.files, 1):
        shown.append(answers.file(info))
        if number % AT_A_TIME == 0:
            await asyncio.sleep(0)
    return FilePage.model_construct(files=shown, next_cursor=page.next_cursor)


async def stat(asked: Asked[SandboxPath, StatFileQuery, None]) -> FileInfo:
    info = await asked.platform.work.files.stat(
        asked.path.sandbox_id, asked.caller, path_of(asked.request.scope), follow=asked.query.follow
    )
    return answers.file(info)


async def mkdir(asked: Asked[SandboxPath, NoParameters, MakeDirectory]) -> Response:
    await asked.platform.work.files.mkdir(
        asked.path.sandbox_id,
        asked.caller,
        exact(asked.body.path, asked.body.path_encoding),
        mode=asked.body.mode,
        parents=asked.body.parents,
    )
    return nothing()


async def move(asked: Asked[SandboxPath, NoParameters, MoveFile]) -> Response:
    await asked.platform.work.files.move(
        asked.path.sandbox_id,
        asked.caller,
        exact(asked.body.source, asked.body.path_encoding),
        exact(asked.body.target, asked.body.path_encoding),
        overwrite=asked.body.overwrite,
    )
    return nothing()


async def remove(asked: Asked[SandboxPath, NoParameters, RemoveFile]) -> Response:
    await asked.platform.work.files.remove(
        asked.path.sandbox_id,
        asked.caller,
        exact(asked.body.path, asked.body.path_encoding),
        recursive=asked.body.recursive,
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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.READ_FILE, read),
    bind(operations.HEAD_FILE, head),
    bind(operations.WRITE_FILE, write),
    bind(operations.DELETE_FILE, delete),
    bind(operations.LIST_FILES, list_files),
    bind(operations.STAT_FILE, stat),
    bind(operations.MAKE_DIRECTORY, mkdir),
    bind(operations.MOVE_FILE, move),
    bind(operations.REMOVE_FILE, remove),
)
