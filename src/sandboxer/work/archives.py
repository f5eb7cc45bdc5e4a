"""Whole folders in and out as tar, made and unpacked by the sandbox's own tar: its limits apply.

An incoming archive is unpacked only when it arrived whole, since its bytes are proven only by their end.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator

from sandboxer.backends.guest import Exit, FileKind, Guest, Stream
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, DiskFull, GuestRefused, NotADirectory
from sandboxer.kernel.ids import new_id
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.work.commands import EXEC_TAG, Wanted, launch
from sandboxer.work.deadline import kill_quietly
from sandboxer.work.files import check_path
from sandboxer.work.lines import Line, Lines

SPOOL_FOLDER = "/var/tmp"
COMPLAINT_BYTES = 2000


class Archives:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    async def pack(self, sandbox_id: str, caller: Caller, path: str) -> AsyncIterator[bytes]:
        """A tar of the folder's content, or of the one file. Raises before the first byte where it can."""
        check_path(path)
        async with self._lines.open(sandbox_id, caller, ActivityKind.EXEC) as line:
            info = await line.guest.files.stat(path)
            where, what = (path, ".") if info.kind is FileKind.DIRECTORY else posixpath.split(path)
            argv = ("tar", "--create", "--file=-", f"--directory={where or '/'}", "--", what)
            async for chunk in _output(line, argv, path):
                yield chunk

    async def unpack(self, sandbox_id: str, caller: Caller, path: str, chunks: AsyncIterator[bytes]) -> int:
        """How many bytes of archive were unpacked into the folder, which is made if need be."""
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
    """stdout of a program that must succeed."""
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
