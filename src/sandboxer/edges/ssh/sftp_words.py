"""Between SFTP's words and ours: paths, attributes, refusals, and folders that are being read."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import AsyncIterator

import asyncssh
from asyncssh import SFTPAttrs, SFTPName

from sandboxer.backends.guest import FileInfo, FileKind
from sandboxer.edges.ssh.house import HOME
from sandboxer.kernel.errors import PathNotFound, PermissionDenied, SandboxerError

_TYPES = {
    FileKind.FILE: stat.S_IFREG,
    FileKind.DIRECTORY: stat.S_IFDIR,
    FileKind.SYMLINK: stat.S_IFLNK,
    FileKind.OTHER: stat.S_IFIFO,
}


class Listing:
    """A folder that a client reads, piece by piece. The library lets go of it when the client closes it."""

    def __init__(self, entries: AsyncIterator[SFTPName]) -> None:
        self._entries = entries

    def __aiter__(self) -> AsyncIterator[SFTPName]:
        return self

    async def __anext__(self) -> SFTPName:
        return await anext(self._entries)


def inside_path(given: bytes) -> str:
    """Absolute and tidy; relative ones begin at home."""
    if b"\0" in given:
        raise asyncssh.SFTPNoSuchFile("a name holds a NUL")
    joined = posixpath.normpath(posixpath.join(HOME, given.decode("utf-8", "surrogateescape")))
    # POSIX keeps two leading slashes.
    return "/" + joined.lstrip("/")


def attributes(info: FileInfo) -> SFTPAttrs:
    return SFTPAttrs(
        size=info.size,
        uid=info.uid,
        gid=info.gid,
        permissions=_TYPES[info.kind] | (info.mode & 0o7777),
        atime=int(info.modified_at),
        mtime=int(info.modified_at),
    )


def refusal(error: SandboxerError) -> asyncssh.SFTPError:
    if isinstance(error, PathNotFound):
        return asyncssh.SFTPNoSuchFile(str(error))
    if isinstance(error, PermissionDenied):
        return asyncssh.SFTPPermissionDenied(str(error))
    return asyncssh.SFTPFailure(str(error))
