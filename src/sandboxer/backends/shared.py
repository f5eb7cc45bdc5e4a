"""Holds what backends and the packages above share: where inside a sandbox a volume may be mounted (pure),
which files a new disk can begin with, whether a folder of the host can be written to; and descriptors that
are closed at the end.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from sandboxer.backends.contract import Handle, VolumeMount
from sandboxer.backends.guest import FolderMount
from sandboxer.kernel.errors import InvalidRequest, Unavailable

MOST = 8
_MAX_PATH = 200
_PATH = re.compile(r"(/[^/\x00-\x1f\x7f]{1,100})+")
# The kernel's, the supervisor's, and what says who is who inside: neither these nor anything below.
RESERVED = ("proc", "dev", "sys", "run", "etc")
# What a sandbox cannot do without; below them there is room.
_WHOLE = frozenset({"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var", "/boot"})


@runtime_checkable
class BeginsWithFiles(Protocol):
    """A backend that puts files into a new disk before anything runs over it."""

    def can_begin_with(self, image: str, paths: Sequence[str]) -> bool:
        """Says whether it can put files at these paths over this image."""


@runtime_checkable
class SeesStrays(Protocol):
    """Finds processes of sandboxes that are outside of every sandbox."""

    async def strays(self) -> Mapping[str, str]:
        """Describes each, by an id that is never another process's. Does not fail because of one of them."""

    async def end_stray(self, stray_id: str) -> None:
        """Gone already is success."""


@runtime_checkable
class MountsFolders(Protocol):
    """A backend that keeps `Order.folders`: when it makes a sandbox, and whenever that starts again."""

    def check_folders(self, folders: Sequence[FolderMount]) -> None:
        """Raises InvalidRequest for a path where no folder can be mounted."""


@runtime_checkable
class ServesSome(Protocol):
    """A backend that must not make sandboxes for everybody: whoever has one may come by more."""

    def serves(self, account: str) -> bool:
        """Says whether the operator trusts this account with it. The operator needs no trust."""


@runtime_checkable
class StandsElsewhere(Protocol):
    """A backend that may make its sandboxes on another host than this one."""

    @property
    def place(self) -> str | None:
        """Returns the name of that host, as the operator's settings have it; None: it is this one."""


@runtime_checkable
class RunsStacks(Protocol):
    """A backend that brings up the services of a compose file in the workspace, beside the sandbox."""

    async def bring_up(self, handle: Handle, bundle: str | None, variables: Mapping[str, str]) -> bool:
        """Brings up what the file says that is named, or found by its name, with these variables, and waits
        until it is ready. Up already is success. Returns False if there is no such file. Raises
        ProvisionFailed, and InvalidRequest for what is no path.
        """


def check_folder_paths(folders: Sequence[FolderMount]) -> None:
    """Checks the paths of the folders of a sandbox. Raises InvalidRequest."""
    for folder in folders:
        if (why := _complaint(folder.path)) is not None:
            raise InvalidRequest(field="folders", why=f"{folder.path}: {why}")


def folders_above(path: str) -> list[str]:
    """Returns the folders that a path leads through, the outermost first."""
    return [str(folder) for folder in reversed(PurePosixPath(path).parents)][1:]


def can_lie_over(image: Path, paths: Sequence[str]) -> bool:
    """Says whether the folders above these paths can be made in an empty layer over the image without
    changing any of it: each is missing there, or root's with the mode that ours have.
    """
    # The outermost first: what is below a link or a file is not the image's, and is not looked at.
    for folder in dict.fromkeys(folder for path in paths for folder in folders_above(path)):
        try:
            seen = os.lstat(f"{image}{folder}")
        except FileNotFoundError:
            continue
        if seen.st_mode != stat.S_IFDIR | 0o755 or (seen.st_uid, seen.st_gid) != (0, 0):
            return False
    return True


def check_volume_paths(mounts: Sequence[VolumeMount]) -> None:
    """Checks the paths of all volumes of a sandbox. Raises InvalidRequest naming the field."""
    if len(mounts) > MOST:
        raise InvalidRequest(field="volumes", why=f"at most {MOST}")
    if len({one.volume_id for one in mounts}) < len(mounts):
        raise InvalidRequest(field="volumes", why="one of them is named twice")
    for number, mount in enumerate(mounts):
        if (why := _complaint(mount.path)) is not None:
            raise InvalidRequest(field=f"volumes.{number}.path", why=why)
    paths = sorted(f"{one.path}/" for one in mounts)
    for above, below in pairwise(paths):
        if below.startswith(above):
            raise InvalidRequest(field="volumes", why=f"{below[:-1]} lies in {above[:-1]}")


def _complaint(path: str) -> str | None:
    parts = path.split("/")[1:]
    try:
        path.encode()
    except UnicodeEncodeError:
        return "not a text that can be a path"
    if len(path) > _MAX_PATH or not _PATH.fullmatch(path) or {".", ".."} & set(parts):
        return f"an absolute path without . and .., of at most {_MAX_PATH} characters"
    if parts[0] in RESERVED or path in _WHOLE:
        return f"/{parts[0]} is the sandbox's own"
    return None


# Flags that open a folder.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A folder with less room than this refuses the next request, or the one after it.
NEEDED_BYTES = 16 * 2**20
_WORDS = b"written to see whether it can be\n" * 128


def write_there(folder: Path, *, needed_bytes: int = NEEDED_BYTES) -> None:
    """Writes a file to the disk and removes it. Raises Unavailable saying what is wrong."""
    path = folder / f".probe-{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with opened(path, flags, mode=0o600) as fd:
            try:
                if os.write(fd, _WORDS) != len(_WORDS):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
            finally:
                os.unlink(path)
        seen = os.statvfs(folder)
    except OSError as error:
        raise Unavailable(why=f"{folder} cannot be written to: {error.strerror}") from error
    if (free := seen.f_bavail * seen.f_frsize) < needed_bytes:
        raise Unavailable(why=f"{folder} has {free >> 20} MB left; {needed_bytes >> 20} MB are needed")


@contextmanager
def held(fd: int) -> Iterator[int]:
    """Closes a descriptor at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def opened(
    path: Path | str | bytes, flags: int = FOLDER, *, mode: int = 0o777, dir_fd: int | None = None
) -> AbstractContextManager[int]:
    """Opens a descriptor, of a folder unless `flags` say otherwise, which is closed at the end."""
    return held(os.open(path, flags, mode, dir_fd=dir_fd))


@contextmanager
def opened_beneath(root: int, path: bytes) -> Iterator[int | None]:
    """Opens a folder of a tree; yields None if there is none, or if a link is on the way."""
    fd = os.dup(root)
    try:
        for part in filter(None, path.split(b"/")):
            try:
                inner = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            except OSError:
                yield None
                return
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def text_of(path: str) -> str:
    """Returns what a file of the kernel says; nothing if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


# State letters of a process that has ended but was not reaped.
_ENDED = frozenset("ZXx")


def pidfd_of(pid: int, started: int) -> int | None:
    """Returns an fd of the very process that was recorded; None when it has ended. A pid is reused, and a
    zombie keeps both pid and start time: neither alone proves life.
    """
    if pid <= 0:
        return None
    try:
        # Any other error (no descriptors left) says nothing about the process: a living one must not be taken
        # for dead, and be ended for it.
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        is_alive = started_at(pid) == started
    except BaseException:
        os.close(fd)
        raise
    if is_alive:
        return fd
    os.close(fd)
    return None


def started_at(pid: int) -> int | None:
    """Returns when the process with this number began, in clock ticks since boot; None when it has ended."""
    fields = _stat_of(pid)
    return int(fields[19]) if fields else None


def threads_of(pid: int) -> int:
    """Returns how many threads a process has: none when it has ended."""
    fields = _stat_of(pid)
    return int(fields[17]) if fields else 0


def _stat_of(pid: int) -> list[bytes]:
    """Returns what /proc says of a process after its name; nothing of one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return []
    fields = text[text.rindex(b")") + 2 :].split()
    return [] if fields[0].decode() in _ENDED else fields
