"""Files of a sandbox, by absolute path, resolved inside by its own kernel. Large ones only pass through."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandboxer.backends.guest import FileEvent, FileInfo, Files, PlacesWatches
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.work.lines import Lines

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePage:
    files: Sequence[FileInfo]
    next_cursor: str | None


def check_path(path: str, *, field: str = "path") -> str:
    """The path itself, if a kernel could take it. Where it leads is the sandbox's own affair."""
    if not path.startswith("/"):
        raise InvalidRequest(field=field, why="it must be absolute (start with /)")
    if "\x00" in path:
        raise InvalidRequest(field=field, why="it must not contain a NUL character")
    raw = os.fsencode(path)
    if len(raw) >= MAX_PATH_BYTES:
        raise InvalidRequest(field=field, why=f"it must be shorter than {MAX_PATH_BYTES} bytes")
    if any(len(name) > MAX_NAME_BYTES for name in raw.split(b"/")):
        raise InvalidRequest(field=field, why=f"a name in it is longer than {MAX_NAME_BYTES} bytes")
    return path


class SandboxFiles:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    @asynccontextmanager
    async def _files(self, sandbox_id: str, caller: Caller) -> AsyncIterator[Files]:
        async with self._lines.open(sandbox_id, caller, ActivityKind.FILES) as line:
            yield line.guest.files

    async def stat(self, sandbox_id: str, caller: Caller, path: str, *, follow: bool = True) -> FileInfo:
        check_path(path)
        async with self._files(sandbox_id, caller) as files:
            return await files.stat(path, follow=follow)

    async def read(
        self, sandbox_id: str, caller: Caller, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        check_path(path)
        async with self._files(sandbox_id, caller) as files:
            async for chunk in files.read(path, offset=offset, length=length):
                yield chunk

    async def write(
        self,
        sandbox_id: str,
        caller: Caller,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        parents: bool = True,
    ) -> FileInfo:
        """Replaces the file when `chunks` ends well; otherwise the old one stays."""
        check_path(path)
        async with self._files(sandbox_id, caller) as files:
            return await files.write(path, chunks, mode=mode, parents=parents)

    async def list(
        self, sandbox_id: str, caller: Caller, path: str, *, depth: int, cursor: str | None, limit: int
    ) -> FilePage:
        """By path. Each page walks the folder anew and holds only itself: no state between pages."""
        check_path(path)
        after = None if cursor is None else _open_cursor(cursor)
        async with self._files(sandbox_id, caller) as files:
            page = await files.list_page(path, depth=depth, after=after, limit=limit)
        return FilePage(
            files=page.files,
            next_cursor=None if page.next_after is None else _make_cursor(page.next_after),
        )

    async def mkdir(self, sandbox_id: str, caller: Caller, path: str, *, mode: int, parents: bool) -> None:
        check_path(path)
        async with self._files(sandbox_id, caller) as files:
            await files.mkdir(path, mode=mode, parents=parents)

    async def move(
        self, sandbox_id: str, caller: Caller, source: str, target: str, *, overwrite: bool
    ) -> None:
        check_path(source, field="source")
        check_path(target, field="target")
        async with self._files(sandbox_id, caller) as files:
            await files.move(source, target, overwrite=overwrite)

    async def remove(self, sandbox_id: str, caller: Caller, path: str, *, recursive: bool) -> None:
        if check_path(path).strip("/") == "":
            raise InvalidRequest(
                field="path", why="the root folder cannot be removed; recreate the sandbox instead"
            )
        async with self._files(sandbox_id, caller) as files:
            await files.remove(path, recursive=recursive)

    async def watch(
        self, sandbox_id: str, caller: Caller, path: str, *, recursive: bool
    ) -> AsyncIterator[FileEvent | None]:
        """None once, when the watch is in place: from there on no change is missed. Then each change."""
        check_path(path)
        async with self._files(sandbox_id, caller) as files:
            if isinstance(files, PlacesWatches):
                source = await files.watching(path, recursive=recursive)
            else:
                await files.stat(path)
                source = files.watch(path, recursive=recursive)
            yield None
            async for event in source:
                yield event


def _make_cursor(path: bytes) -> str:
    return base64.urlsafe_b64encode(path).decode().rstrip("=")


def _open_cursor(cursor: str) -> bytes:
    try:
        path = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        path = b""
    if not path.startswith(b"/"):
        raise InvalidRequest(field="cursor", why="it is not a cursor that this list returned")
    return path
