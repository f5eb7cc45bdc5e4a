"""SFTP on top of the supervisor's file operations: nothing has to be installed inside, and no path is on the
host.

What the supervisor cannot do (modes, owners, times, links) is done by the sandbox's own programs. Plain
functions translate between SFTP's values and ours: paths, attributes, errors.
"""

from __future__ import annotations

import asyncio
import posixpath
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakSet

import asyncssh
from asyncssh import SFTPAttrs, SFTPName
from asyncssh.channel import SSHChannel

from sandboxer.backends.guest import Command, Exit, FileInfo, FileKind, Guest
from sandboxer.edges.ssh.channels import MAX_WAITING, breathe
from sandboxer.edges.ssh.dependencies import HOME, PROGRAM, Login
from sandboxer.edges.ssh.uploads import Upload
from sandboxer.kernel.errors import PathNotFound, PermissionDenied, SandboxerError
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.lines import DEFAULT_ENV

MAX_OPEN = 64
MAX_READ = 1024 * 1024
# Pieces smaller than this cost as much as any other step.
SMALL = 16 * 1024
_LOOK_S = 0.01
_PROGRAM_S = 30.0
_TYPES = {
    FileKind.FILE: stat.S_IFREG,
    FileKind.DIRECTORY: stat.S_IFDIR,
    FileKind.SYMLINK: stat.S_IFLNK,
    FileKind.OTHER: stat.S_IFIFO,
}


# Two handles of one file are distinct.
@dataclass(frozen=True, slots=True, eq=False)
class Download:
    path: str


async def open_sftp(login: Login, channel: SSHChannel[bytes]) -> Sftp:
    """Opens a transfer, which counts as a request and may be refused; its steps are limited in rate."""
    assert isinstance(channel, asyncssh.SSHServerChannel)
    try:
        await login.count()
    except SandboxerError as error:
        # Clients show the code of a failure, not its text.
        channel.write_stderr(f"sandboxer: {error} {error.next_step}\r\n".encode())
        return Sftp(login, channel, shut=refusal(error))
    return Sftp(login, channel)


class Sftp(asyncssh.SFTPServer):
    def __init__(
        self,
        login: Login,
        channel: asyncssh.SSHServerChannel[bytes],
        *,
        shut: asyncssh.SFTPError | None = None,
    ) -> None:
        super().__init__(channel)
        self._login = login
        self._shut = shut
        self._open: set[Upload | Download] = set()
        self._listings: WeakSet[Listing] = WeakSet()

    # -- files

    async def open(self, path: bytes, pflags: int, attrs: SFTPAttrs) -> object:
        where = inside_path(path)
        if len(self._open) >= MAX_OPEN:
            raise asyncssh.SFTPFailure(f"at most {MAX_OPEN} files are open at once")
        if not pflags & (asyncssh.FXF_WRITE | asyncssh.FXF_APPEND):
            return await self._open_to_read(where)
        return await self._open_to_write(where, pflags, attrs)

    async def _open_to_read(self, where: str) -> Download:
        async with self._inside(ActivityKind.FILES) as guest:
            async for _ in guest.files.read(where, length=0):
                break
        opened = Download(where)
        self._open.add(opened)
        return opened

    async def _open_to_write(self, where: str, pflags: int, attrs: SFTPAttrs) -> Upload:
        if (known := await self._known(where)) is not None and pflags & asyncssh.FXF_EXCL:
            raise asyncssh.SFTPFailure("it exists")
        if known is None and not pflags & asyncssh.FXF_CREAT:
            raise asyncssh.SFTPNoSuchFile("it does not exist")
        if known is not None and known.kind is not FileKind.FILE:
            raise asyncssh.SFTPFailure("it is not a regular file")
        old_size = 0 if known is None or pflags & asyncssh.FXF_TRUNC else known.size
        given = 0o666 & ~0o022 if attrs.permissions is None else attrs.permissions & 0o7777
        mode = given if known is None else known.mode & 0o7777
        upload = Upload(where, mode, self._carry, self._login.lease(), old_size=old_size)
        self._open.add(upload)
        return upload

    async def _carry(self, upload: Upload) -> None:
        async with self._inside(ActivityKind.FILES, cost=0) as guest:
            await upload.carry(guest)

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        if not isinstance(file_obj, Download):
            raise asyncssh.SFTPPermissionDenied("it was opened to be written")
        # The reader slows down bytes; small pieces slow down only the client itself.
        async with self._inside(ActivityKind.FILES, cost=size < SMALL) as guest:
            length = min(size, MAX_READ)
            pieces = [piece async for piece in guest.files.read(file_obj.path, offset=offset, length=length)]
        return b"".join(pieces)

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        if not isinstance(file_obj, Upload):
            raise asyncssh.SFTPPermissionDenied("it was opened to be read")
        if len(data) < SMALL:
            await self._login.wait_for_rate(1)
        await file_obj.write(offset, data)
        return len(data)

    async def close(self, file_obj: object) -> None:
        assert isinstance(file_obj, Upload | Download)
        self._open.discard(file_obj)
        if not isinstance(file_obj, Upload):
            return
        if self.channel.is_closing():
            # The client is gone without closing it: half a file must not replace a whole one.
            file_obj.abandon()
            return
        try:
            await file_obj.close()
        finally:
            file_obj.abandon()
        await self._set(file_obj.path, file_obj.later)

    def exit(self) -> None:
        for opened in self._open:
            if isinstance(opened, Upload):
                opened.abandon()
        self._open.clear()
        # scp takes a missing answer for a failure.
        self.channel.exit(0)

    # -- what there is

    async def lstat(self, path: bytes) -> SFTPAttrs:
        async with self._inside(ActivityKind.FILES) as guest:
            return attributes(await guest.files.stat(inside_path(path), follow=False))

    async def stat(self, path: bytes) -> SFTPAttrs:
        async with self._inside(ActivityKind.FILES) as guest:
            return attributes(await guest.files.stat(inside_path(path)))

    async def fstat(self, file_obj: object) -> SFTPAttrs:
        if isinstance(file_obj, Upload):
            return SFTPAttrs(size=file_obj.position, permissions=stat.S_IFREG | 0o600)
        assert isinstance(file_obj, Download)
        return await self.stat(file_obj.path.encode("utf-8", "surrogateescape"))

    def scandir(self, path: bytes) -> AsyncIterator[SFTPName]:
        if len(self._listings) >= MAX_OPEN:
            raise asyncssh.SFTPFailure(f"at most {MAX_OPEN} folders are open at once")
        listing = Listing(self._entries(path))
        self._listings.add(listing)
        return listing

    async def _entries(self, path: bytes) -> AsyncIterator[SFTPName]:
        async with self._inside(ActivityKind.FILES) as guest:
            async for info in guest.files.list(inside_path(path)):
                name = posixpath.basename(info.path).encode("utf-8", "surrogateescape")
                yield SFTPName(name, attrs=attributes(info))

    async def realpath(self, path: bytes) -> bytes:
        await self._login.wait_for_rate(1)
        return inside_path(path).encode("utf-8", "surrogateescape")

    async def readlink(self, path: bytes) -> bytes:
        async with self._inside(ActivityKind.FILES) as guest:
            found = await guest.files.stat(inside_path(path), follow=False)
        if found.link_target is None:
            raise asyncssh.SFTPFailure("it is not a link")
        return found.link_target.encode("utf-8", "surrogateescape")

    def format_user(self, uid: int | None) -> str:
        # The host's user names do not apply inside.
        return "" if uid is None else str(uid)

    def format_group(self, gid: int | None) -> str:
        return "" if gid is None else str(gid)

    # -- changes

    async def remove(self, path: bytes) -> None:
        async with self._inside(ActivityKind.FILES) as guest:
            await guest.files.remove(inside_path(path))

    async def mkdir(self, path: bytes, attrs: SFTPAttrs) -> None:
        mode = 0o755 if attrs.permissions is None else attrs.permissions & 0o7777
        async with self._inside(ActivityKind.FILES) as guest:
            if await self._known(inside_path(path)) is not None:
                raise asyncssh.SFTPFailure("it exists")
            await guest.files.mkdir(inside_path(path), mode=mode, parents=False)

    async def rmdir(self, path: bytes) -> None:
        found = await self.lstat(path)
        if not stat.S_ISDIR(found.permissions or 0):
            raise asyncssh.SFTPFailure("it is not a directory")
        async with self._inside(ActivityKind.FILES) as guest:
            await guest.files.remove(inside_path(path))

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._move(oldpath, newpath, overwrite=False)

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._move(oldpath, newpath, overwrite=True)

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        inside_path(oldpath)
        target = oldpath.decode("utf-8", "surrogateescape")
        await self._program("ln", "-sn", "--", target, inside_path(newpath))

    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        await self._program("ln", "-n", "--", inside_path(oldpath), inside_path(newpath))

    async def setstat(self, path: bytes, attrs: SFTPAttrs) -> None:
        await self._set(inside_path(path), attrs)

    async def lsetstat(self, path: bytes, attrs: SFTPAttrs) -> None:
        await self._set(inside_path(path), attrs, follow=False)

    async def fsetstat(self, file_obj: object, attrs: SFTPAttrs) -> None:
        if isinstance(file_obj, Upload):
            await self._login.wait_for_rate(1)
            file_obj.set(attrs)
        elif isinstance(file_obj, Download):
            await self._set(file_obj.path, attrs)

    async def fsync(self, file_obj: object) -> None:
        """Does nothing: a file appears when it is closed."""
        await self._login.wait_for_rate(1)

    def statvfs(self, path: bytes) -> asyncssh.SFTPVFSAttrs:
        raise asyncssh.SFTPOpUnsupported("ask `df` inside")

    fstatvfs = statvfs  # type: ignore[assignment]

    # -- steps

    async def _move(self, oldpath: bytes, newpath: bytes, *, overwrite: bool) -> None:
        async with self._inside(ActivityKind.FILES) as guest:
            await guest.files.move(inside_path(oldpath), inside_path(newpath), overwrite=overwrite)

    async def _known(self, where: str) -> FileInfo | None:
        try:
            async with self._login.guest(ActivityKind.FILES) as guest:
                return await guest.files.stat(where)
        except PathNotFound:
            return None
        except SandboxerError as error:
            raise refusal(error) from None

    async def _set(self, where: str, attrs: SFTPAttrs, *, follow: bool = True) -> None:
        link = () if follow else ("-h",)
        if attrs.size is not None:
            await self._program("truncate", "-s", str(attrs.size), "--", where)
        if attrs.uid is not None and attrs.gid is not None:
            await self._program("chown", *link, f"{attrs.uid}:{attrs.gid}", "--", where)
        if attrs.permissions is not None and follow:
            await self._program("chmod", f"{attrs.permissions & 0o7777:o}", "--", where)
        if attrs.mtime is not None:
            await self._program("touch", *link, "-c", "-d", f"@{attrs.mtime}", "--", where)

    async def _program(self, *argv: str) -> None:
        """Runs one of the sandbox's own programs to its end."""
        command = Command(argv=argv, env=DEFAULT_ENV, keep=False)
        said, code = bytearray(), -1
        try:
            async with (
                self._inside(ActivityKind.EXEC, cost=PROGRAM) as guest,
                asyncio.timeout(_PROGRAM_S),
                await guest.run(command) as process,
            ):
                async for item in process.output():
                    if isinstance(item, Exit):
                        code = item.code
                    elif len(said) < 400:
                        said += item.data
        except TimeoutError:
            raise asyncssh.SFTPFailure(f"{argv[0]} took longer than {_PROGRAM_S:g} s") from None
        if code != 0:
            raise asyncssh.SFTPFailure(said[:400].decode("utf-8", "replace").strip() or f"{argv[0]} failed")

    @asynccontextmanager
    async def _inside(self, activity: ActivityKind, *, cost: float = 1) -> AsyncIterator[Guest]:
        if self.channel.is_closing():
            # Thousands of its requests may be waiting: each is refused, and others get their turn between.
            await asyncio.sleep(0)
            raise asyncssh.SFTPConnectionLost("the client is gone")
        if self._shut is not None:
            raise self._shut
        # The library writes answers whether anybody reads or not, so the buffer is checked first.
        while self.channel.get_write_buffer_size() > MAX_WAITING:
            if self.channel.is_closing():
                raise asyncssh.SFTPConnectionLost("the client is gone")
            await asyncio.sleep(_LOOK_S)
        await breathe(self.channel.get_connection())
        if cost:
            await self._login.wait_for_rate(cost)
        try:
            async with self._login.guest(activity) as guest:
                yield guest
        except SandboxerError as error:
            raise refusal(error) from None


class Listing:
    """A folder that a client reads piece by piece. The library releases it when the client closes it."""

    def __init__(self, entries: AsyncIterator[SFTPName]) -> None:
        self._entries = entries

    def __aiter__(self) -> AsyncIterator[SFTPName]:
        return self

    async def __anext__(self) -> SFTPName:
        return await anext(self._entries)


def inside_path(given: bytes) -> str:
    """Returns an absolute, normalised path; relative ones begin at the home folder."""
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
