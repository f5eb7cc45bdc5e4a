"""Whole folders: watched for changes, and as tar in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response

from sandboxer.backends.guest import FileEvent
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.downloads import Download
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.queries import path_of
from sandboxer.edges.http.routes.files import body_of
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.wire.files import TarUnpacked, WatchReady
from sandboxer.wire.operations import files as operations
from sandboxer.wire.operations.files import PackFolderQuery, UnpackFolderQuery, WatchFilesQuery
from sandboxer.wire.operations.paths import SandboxPath

TAR = "application/x-tar"


async def watch(asked: Asked[SandboxPath, WatchFilesQuery, None]) -> Response:
    where = path_of(asked.request.scope)
    source = asked.platform.work.files.watch(
        asked.path.sandbox_id, asked.caller, where, recursive=asked.query.recursive
    )
    return EventStream(_changes(source, where, asked.query.recursive))


async def pack(asked: Asked[SandboxPath, PackFolderQuery, None]) -> Response:
    source = asked.platform.work.archives.pack(
        asked.path.sandbox_id, asked.caller, path_of(asked.request.scope)
    )
    return Download(source, headers={}, media_type=TAR)


async def unpack(asked: Asked[SandboxPath, UnpackFolderQuery, None]) -> Response:
    where = path_of(asked.request.scope)
    try:
        received = await asked.platform.work.archives.unpack(
            asked.path.sandbox_id, asked.caller, where, body_of(asked.request)
        )
    except TooSlow:
        return problems.framework_response(
            408,
            "The body came too slowly.",
            problems.request_id_of(asked.request.scope),
            {"connection": "close"},
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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.WATCH_FILES, watch),
    bind(operations.PACK_FOLDER, pack),
    bind(operations.UNPACK_FOLDER, unpack),
)
