"""Routes of files: content is read with ranges, written as a stream, removed. Folders are watched for
changes, and transferred as tar.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from email.utils import formatdate
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.backends.guest import FileEvent, FileKind
from sandboxer.backends.guest import FileInfo as GuestFile
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.binding import Asked, AskedPathBody, bind
from sandboxer.edges.http.bodies import Download, EventStream, ServerEvent
from sandboxer.edges.http.disconnection import ClientGone
from sandboxer.edges.http.requests import NotSatisfiable, caller, exact, path_of, platform_of, span
from sandboxer.kernel.errors import IsADirectory, NotARegularFile
from sandboxer.wire.files import (
    FileInfo,
    FilePage,
    MakeDirectory,
    MoveFile,
    RemoveFile,
    TarUnpacked,
    WatchReady,
)
from sandboxer.wire.operations import inside as operations
from sandboxer.wire.operations.sandboxes import SandboxPath

# Entries of a listing that are converted before others get their turn: about a millisecond.
AT_A_TIME = 50
TAR = "application/x-tar"


async def read(asked: Asked[SandboxPath, operations.ReadFileQuery]) -> Response:
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
        length=part.length or None,
    )
    if not info.size:
        return await _of_unknown_size(source, headers)
    status = 206 if part.is_part else 200
    return Download(
        source, headers=headers, media_type="application/octet-stream", status=status, length=part.length
    )


async def head(asked: Asked[SandboxPath, operations.FileQuery]) -> Response:
    info = await _regular(asked.request, asked.path.sandbox_id)
    headers = {**_headers(info), "content-length": str(info.size)}
    return Response(headers=headers, media_type="application/octet-stream")


async def write(asked: Asked[SandboxPath, operations.WriteFileQuery]) -> FileInfo:
    info = await asked.platform.work.files.write(
        asked.path.sandbox_id,
        asked.caller,
        path_of(asked.request.scope),
        body_of(asked.request),
        mode=asked.query.mode,
        parents=asked.query.parents,
    )
    return answers.file(info)


async def delete(asked: Asked[SandboxPath, operations.DeleteFileQuery]) -> None:
    await asked.platform.work.files.remove(
        asked.path.sandbox_id, asked.caller, path_of(asked.request.scope), recursive=asked.query.recursive
    )


async def list_files(asked: Asked[SandboxPath, operations.ListFilesQuery]) -> FilePage:
    page = await asked.platform.work.files.list(
        asked.path.sandbox_id,
        asked.caller,
        path_of(asked.request.scope),
        depth=asked.query.depth,
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown: list[FileInfo] = []
    for start in range(0, len(page.files), AT_A_TIME):
        began = time.monotonic()
        shown += [answers.file(info) for info in page.files[start : start + AT_A_TIME]]
        # Twice: to read them from what the guest said took as long before.
        await asked.lease.in_turn(2 * (time.monotonic() - began))
    return FilePage.model_construct(files=shown, next_cursor=page.next_cursor)


async def stat(asked: Asked[SandboxPath, operations.StatFileQuery]) -> FileInfo:
    info = await asked.platform.work.files.stat(
        asked.path.sandbox_id, asked.caller, path_of(asked.request.scope), follow=asked.query.follow
    )
    return answers.file(info)


async def mkdir(asked: AskedPathBody[SandboxPath, MakeDirectory]) -> None:
    await asked.platform.work.files.mkdir(
        asked.path.sandbox_id,
        asked.caller,
        exact(asked.body.path, asked.body.path_encoding),
        mode=asked.body.mode,
        parents=asked.body.parents,
    )


async def move(asked: AskedPathBody[SandboxPath, MoveFile]) -> None:
    await asked.platform.work.files.move(
        asked.path.sandbox_id,
        asked.caller,
        exact(asked.body.source, asked.body.path_encoding),
        exact(asked.body.target, asked.body.path_encoding),
        overwrite=asked.body.overwrite,
    )


async def remove(asked: AskedPathBody[SandboxPath, RemoveFile]) -> None:
    await asked.platform.work.files.remove(
        asked.path.sandbox_id,
        asked.caller,
        exact(asked.body.path, asked.body.path_encoding),
        recursive=asked.body.recursive,
    )


async def body_of(request: Request) -> AsyncIterator[bytes]:
    """Yields the body as it arrives. Raises at its end if it is not the one that was signed."""
    receive = request.receive
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


async def _of_unknown_size(source: AsyncIterator[bytes], headers: dict[str, str]) -> Response:
    """Tells whether the size is unknown: an empty file, or one of `/proc`, whose content the kernel makes up
    while it says that it is empty.
    """
    if not (first := await anext(source, b"")):
        return Response(b"", headers=headers, media_type="application/octet-stream")

    async def whole() -> AsyncIterator[bytes]:
        async with aclosing(cast(AsyncGenerator[bytes], source)):
            yield first
            async for piece in source:
                yield piece

    return Download(whole(), headers=headers, media_type="application/octet-stream")


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


async def watch(asked: Asked[SandboxPath, operations.WatchFilesQuery]) -> Response:
    where = path_of(asked.request.scope)
    source = asked.platform.work.files.watch(
        asked.path.sandbox_id, asked.caller, where, recursive=asked.query.recursive
    )
    return EventStream(_changes(source, where, asked.query.recursive))


async def pack(asked: Asked[SandboxPath, operations.FileQuery]) -> Response:
    source = asked.platform.work.archives.pack(
        asked.path.sandbox_id, asked.caller, path_of(asked.request.scope)
    )
    return Download(source, headers={}, media_type=TAR)


async def unpack(asked: Asked[SandboxPath, operations.FileQuery]) -> TarUnpacked:
    where = path_of(asked.request.scope)
    received = await asked.platform.work.archives.unpack(
        asked.path.sandbox_id, asked.caller, where, body_of(asked.request)
    )
    return TarUnpacked(path=answers.printable(where), received_bytes=received)


async def _changes(
    source: AsyncIterator[FileEvent | None], path: str, recursive: bool
) -> AsyncIterator[ServerEvent]:
    async with aclosing(source) as changes:  # type: ignore[type-var]
        async for change in changes:
            if change is None:
                yield ServerEvent("ready", WatchReady(path=answers.printable(path), recursive=recursive))
            else:
                yield ServerEvent("change", answers.file_event(change))


BINDINGS = (
    bind(operations.READ_FILE, read),
    bind(operations.HEAD_FILE, head),
    bind(operations.WRITE_FILE, write),
    bind(operations.DELETE_FILE, delete),
    bind(operations.LIST_FILES, list_files),
    bind(operations.STAT_FILE, stat),
    bind(operations.MAKE_DIRECTORY, mkdir),
    bind(operations.MOVE_FILE, move),
    bind(operations.REMOVE_FILE, remove),
    bind(operations.WATCH_FILES, watch),
    bind(operations.PACK_FOLDER, pack),
    bind(operations.UNPACK_FOLDER, unpack),
)
