"""Files of a sandbox, named by absolute paths that the sandbox's own kernel resolves. Large files only pass
through.
"""

from __future__ import annotations

import base64
import binascii
import os
import posixpath
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from sandboxer.backends.guest import Exit, FileEvent, FileInfo, FileKind, Files, Guest, PlacesWatches, Stream
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, DiskFull, GuestRefused, InvalidRequest, NotADirectory
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.exec import kill_quietly
from sandboxer.work.lines import EXEC_TAG, Line, Lines, Wanted, launch

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
MAX_DEPTH = 64


@value_class
class FilePage:
    files: Sequence[FileInfo]
    next_cursor: str | None


def check_path(path: str, *, field: str = "path") -> str:
    """Returns the path if a kernel could accept it. What it leads to is the sandbox's own affair."""
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
    async def _files(self, sandbox_id: str, caller: Caller, path: str) -> AsyncIterator[Files]:
        """Yields the files of a sandbox for a request about this path. Raises InvalidRequest."""
        check_path(path)
        async with self._lines.open(sandbox_id, caller, ActivityKind.FILES) as line:
            yield line.guest.files

    async def stat(
        self, sandbox_id: str, caller: Caller, path: str, *, follow: bool = True, attributes: str = ""
    ) -> FileInfo:
        """`attributes` is the beginning of the names of extended attributes that are wanted."""
        async with self._files(sandbox_id, caller, path) as files:
            return await files.stat(path, follow=follow, attributes=attributes)

    async def read(
        self, sandbox_id: str, caller: Caller, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        async with self._files(sandbox_id, caller, path) as files:
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
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        """Replaces the file when `chunks` ends without an error; otherwise the old file stays. It belongs to
        the user `owner` of the sandbox, if one is named.
        """
        async with self._files(sandbox_id, caller, path) as files:
            return await files.write(
                path, chunks, mode=mode, parents=parents, owner=owner, attributes=attributes
            )

    async def list(
        self,
        sandbox_id: str,
        caller: Caller,
        path: str,
        *,
        depth: int,
        cursor: str | None,
        limit: int,
        attributes: str = "",
    ) -> FilePage:
        """Returns a page of entries by path. Each page walks the folder anew, so nothing is held between
        pages.
        """
        check_path(path)
        after = None if cursor is None else _open_cursor(cursor)
        async with self._files(sandbox_id, caller, path) as files:
            page = await files.list_page(path, depth=depth, after=after, limit=limit, attributes=attributes)
        return FilePage(
            files=page.files,
            next_cursor=None if page.next_after is None else _make_cursor(page.next_after),
        )

    async def mkdir(
        self,
        sandbox_id: str,
        caller: Caller,
        path: str,
        *,
        mode: int,
        parents: bool,
        owner: str | None = None,
    ) -> None:
        async with self._files(sandbox_id, caller, path) as files:
            await files.mkdir(path, mode=mode, parents=parents, owner=owner)

    async def move(
        self, sandbox_id: str, caller: Caller, source: str, target: str, *, overwrite: bool
    ) -> None:
        check_path(source, field="source")
        check_path(target, field="target")
        async with self._files(sandbox_id, caller, source) as files:
            await files.move(source, target, overwrite=overwrite)

    async def remove(self, sandbox_id: str, caller: Caller, path: str, *, recursive: bool) -> None:
        if path and not path.strip("/"):
            raise InvalidRequest(
                field="path", why="the root folder cannot be removed; recreate the sandbox instead"
            )
        async with self._files(sandbox_id, caller, path) as files:
            await files.remove(path, recursive=recursive)

    async def watch(
        self, sandbox_id: str, caller: Caller, path: str, *, recursive: bool
    ) -> AsyncIterator[FileEvent | None]:
        """Yields None once, when the watch is in place and no change is missed any more; then each change."""
        async with self._files(sandbox_id, caller, path) as files:
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


SPOOL_FOLDER = "/var/tmp"
COMPLAINT_BYTES = 2000


class Archives:
    """Transfers whole folders as tar. The sandbox's own tar packs and unpacks them, so the sandbox's limits
    apply.

    An incoming archive is unpacked only after it has arrived completely, since only its end proves its bytes.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    async def pack(self, sandbox_id: str, caller: Caller, path: str) -> AsyncIterator[bytes]:
        """Yields a tar of the folder's content, or of the one file. Where possible it raises before the first
        byte.
        """
        check_path(path)
        async with self._lines.open(sandbox_id, caller, ActivityKind.EXEC) as line:
            info = await line.guest.files.stat(path)
            where, what = (path, ".") if info.kind is FileKind.DIRECTORY else posixpath.split(path)
            argv = ("tar", "--create", "--file=-", f"--directory={where or '/'}", "--", what)
            async for chunk in _output(line, argv, path):
                yield chunk

    async def unpack(self, sandbox_id: str, caller: Caller, path: str, chunks: AsyncIterator[bytes]) -> int:
        """Unpacks into the folder, which is created if necessary, and returns how many bytes of archive were
        read.
        """
        check_path(path)
        async with self._lines.open(sandbox_id, caller, ActivityKind.EXEC) as line:
            spool = posixpath.join(SPOOL_FOLDER, f".{new_id('tar')}")
            info = await line.guest.files.write(spool, chunks, mode=0o600)
            try:
                await _make_folder(line.guest, path)
                argv = ("tar", "--extract", f"--file={spool}", f"--directory={path}")
                async for _ in _output(line, argv, path):
                    pass
            finally:
                await line.guest.files.remove(spool)
            return info.size


async def _make_folder(guest: Guest, path: str) -> None:
    await guest.files.mkdir(path, parents=True)
    if (await guest.files.stat(path)).kind is not FileKind.DIRECTORY:
        raise NotADirectory(path=path, errno_name="ENOTDIR")


async def _output(line: Line, argv: tuple[str, ...], path: str) -> AsyncIterator[bytes]:
    """Yields the stdout of a program that must succeed."""
    complaint = b""
    ended: Exit | None = None
    async with await launch(
        line.guest, Wanted(argv=argv, cwd="/"), line.env, tag=EXEC_TAG, keep=False
    ) as process:
        try:
            async for item in process.output():
                if isinstance(item, Exit):
                    ended = item
                    break
                if item.stream is Stream.STDOUT:
                    yield item.data
                elif len(complaint) < COMPLAINT_BYTES:
                    complaint += item.data
        finally:
            if ended is None:
                await kill_quietly(process)
    _check(ended, complaint, path)


def _check(ended: Exit | None, complaint: bytes, path: str) -> None:
    if ended is None:
        raise BackendLost(why="tar's output ended without its exit")
    if ended.code == 0:
        return
    text = complaint[:COMPLAINT_BYTES].decode(errors="replace").strip()
    if "No space left" in text or "quota exceeded" in text:
        raise DiskFull(path=path, errno_name="ENOSPC", why=text)
    raise GuestRefused(path=path, errno_name="EIO", why=text or f"tar ended with {ended.code}")
