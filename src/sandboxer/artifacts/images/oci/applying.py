"""Unpacks untrusted layers one over the other into one folder.

The kernel resolves every name inside that folder and nowhere else (`openat2` with RESOLVE_IN_ROOT), whatever
a link says. Devices, FIFOs and attributes are not created. Owners that no sandbox has become `nobody`.

Unpacks layers of an archive: plain, gzip or zstd, in one piece or in many (as `estargz` and `zstd:chunked`
write them). At most one small piece is unpacked at a time, since a small blob may hold a very large layer.

A whole archive may be packed too (`docker save … | gzip`). It is unpacked into a second file of ours, because
its parts are found by position, and packed data has none. It may become no larger than a plain archive may
be, and its memory and time are limited like a layer's.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from sandboxer.artifacts.images.oci.tar import (
    FILE,
    FOLDER,
    HARD_LINK,
    LINK,
    OPAQUE,
    WHITEOUT,
    Member,
    Work,
    odd,
)
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.backends.shared import held, opened
from sandboxer.kernel.errors import DiskFull, NoCapacity, TooLarge
from sandboxer.kernel.program import ZSTD, late
from sandboxer.kernel.values import brief_value_class

if TYPE_CHECKING:
    from backports import zstd
else:
    zstd = late(ZSTD)

PIECE = 1 << 20
# How many packed bytes are fed at once; the rest of them is copied for every piece that ends among them.
FEED = 16 << 10
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# Frames that may be skipped; there are sixteen kinds, which differ in the first byte.
_ZSTD_NOTE = b"\x2a\x4d\x18"
# The limit of `zstd -d`: 128 MB of memory for one layer.
_WINDOW_LOG = 27
# This much stays free on the host, whatever is uploaded.
FREE_BYTES = 1 << 30
_START = 8


class Packing(Protocol):
    @property
    def is_hungry(self) -> bool:
        """It gives nothing more until it is fed."""

    def unpack(self, fed: bytes, /) -> bytes:
        """Returns at most PIECE bytes, perhaps none. Raises InvalidRequest for damaged data."""

    def finish(self) -> None:
        """Raises InvalidRequest if the data was cut short."""


def packing_of(start: bytes) -> Packing:
    if start.startswith(_GZIP):
        return Gzip()
    if start.startswith(_ZSTD) or (start[1:4] == _ZSTD_NOTE and start[0] & 0xF0 == 0x50):
        return Zstd()
    return Plain()


class Plain:
    is_hungry = True

    def unpack(self, fed: bytes, /) -> bytes:
        return fed

    def finish(self) -> None:
        pass


class Gzip:
    def __init__(self) -> None:
        self._one = zlib.decompressobj(wbits=31)
        self._left = b""
        self._is_between = False

    @property
    def is_hungry(self) -> bool:
        return not self._left

    def unpack(self, fed: bytes, /) -> bytes:
        if self._is_between:
            self._one = zlib.decompressobj(wbits=31)
        try:
            content = self._one.decompress(self._left + fed, PIECE)
        except zlib.error:
            raise odd("something packed in it is damaged") from None
        self._is_between = self._one.eof
        self._left = self._one.unused_data if self._one.eof else self._one.unconsumed_tail
        return content

    def finish(self) -> None:
        if not self._is_between:
            raise odd("something packed in it is cut short")


class Zstd:
    def __init__(self) -> None:
        self._one = _new_frame()
        self._left = b""

    @property
    def is_hungry(self) -> bool:
        return not self._left and (self._one.eof or self._one.needs_input)

    def unpack(self, fed: bytes, /) -> bytes:
        if self._one.eof:
            self._one = _new_frame()
        try:
            content = self._one.decompress(self._left + fed, PIECE)
        except zstd.ZstdError:
            needs = f"needs more than {1 << _WINDOW_LOG - 20} MB to be unpacked"
            raise odd(f"something packed in it is damaged, or {needs}") from None
        self._left = self._one.unused_data if self._one.eof else b""
        return content

    def finish(self) -> None:
        if not self._one.eof:
            raise odd("something packed in it is cut short")


def _new_frame() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


def is_packed(file: IO[bytes]) -> bool:
    file.seek(0)
    return not isinstance(packing_of(file.read(_START)), Plain)


def unpack_whole(packed: IO[bytes], plain: IO[bytes], *, room: Path, most_bytes: int, ends: float) -> None:
    """Unpacks a packed archive. Blocks. Raises InvalidRequest for damaged data, TooLarge, NoCapacity if
    `room` has none.

    `ends` is when, by the monotonic clock, reading stops.
    """
    packed.seek(0)
    packing, fed, size = packing_of(packed.read(_START)), b"", 0
    packed.seek(0)
    while True:
        if packing.is_hungry and not (fed := packed.read(FEED)):
            break
        # Empty pieces take as long as full ones, and the archive may consist of nothing else.
        if time.monotonic() > ends:
            raise TooLarge(what="archive", limit="the time there is to read it")
        content, fed = packing.unpack(fed), b""
        size += len(content)
        if size > most_bytes:
            raise TooLarge(what="archive", limit=f"{most_bytes >> 20} MB unpacked")
        if content:
            refuse_full(room, len(content))
            plain.write(content)
    packing.finish()
    plain.flush()


def refuse_full(room: Path, count: int) -> None:
    """Raises NoCapacity if `count` more bytes in `room` would leave the host too little."""
    if shutil.disk_usage(room).free < FREE_BYTES + count:
        raise NoCapacity(resource="disk", why="the host has no room to receive it")


_OPENAT2 = 437
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
_MOST_ID, _NOBODY = 65535, 65534
_PLACES = {
    b"dev": 0o755,
    b"proc": 0o555,
    b"sys": 0o555,
    b"run": 0o755,
    b"tmp": 0o1777,
    b"etc": 0o755,
    b"root": 0o700,
}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_libc = ctypes.CDLL(None, use_errno=True)
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True)
class Applying:
    """Applies layers to the folder behind `root`, which nobody else writes to."""

    root: int
    bounds: Bounds
    entries: int = 0
    size: int = 0
    skipped: int = 0
    ends: float = field(init=False)
    work: Work = field(init=False)
    # Paths made by the layer being applied: a whiteout hides only what earlier layers made. Empty if the
    # layer has none.
    fresh: set[bytes] = field(default_factory=set)
    _has_marks: bool = True
    # Folders that this layer has cleared; what it puts there after the first whiteout is its own, and stays.
    _cleared: set[tuple[int, int]] = field(default_factory=set)
    # The folder of the last file; the next one mostly goes there too.
    _last: _Opened | None = None

    def __post_init__(self) -> None:
        self.ends = time.monotonic() + self.bounds.seconds
        self.work = Work(self.bounds)

    def apply(self, members: Iterator[Member], *, has_marks: bool = True) -> None:
        """Applies one layer. Blocks. Raises InvalidRequest, TooLarge, DiskFull.

        `has_marks` says that it may hide what earlier layers made; False saves the memory for all its paths.
        """
        self.fresh, self._has_marks, self._cleared = set(), has_marks, set()
        try:
            for member in members:
                self._count(member)
                parts = _parts(member.path)
                if not self._put_beside(member, parts):
                    self._forget()
                    self._place(member, parts)
        except RecursionError:
            raise odd("folders in it are too deep") from None
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(path="archive", errno_name=errno.errorcode[error.errno or 0]) from error
            # Any other error is the archive's fault: a file in place of a folder, a loop of links.
            raise odd(f"it cannot be unpacked: {error.strerror}") from error
        finally:
            self._forget()

    def on_start(self) -> None:
        """Makes what every sandbox needs of its tree: the mount points, as real folders."""
        for name, mode in _PLACES.items():
            if not _is_folder(self.root, name):
                _remove(self.root, name)
                os.mkdir(name, mode, dir_fd=self.root)
                os.chmod(name, mode, dir_fd=self.root)

    def _count(self, member: Member) -> None:
        self.entries += 1
        self.work.step()
        self.size += member.size
        if self.entries > self.bounds.entries:
            raise TooLarge(what="image", limit=f"{self.bounds.entries} files and folders")
        if self.size > self.bounds.bytes:
            raise TooLarge(what="image", limit=f"{self.bounds.bytes >> 20} MB")
        if time.monotonic() > self.ends:
            raise TooLarge(what="image", limit=f"{self.bounds.seconds:g} s to unpack it")

    def _place(self, member: Member, parts: list[bytes]) -> None:
        if not parts:
            if member.kind == FOLDER:
                _own(self.root, member)
            return
        if len(parts) > self.bounds.depth:
            raise TooLarge(what="image", limit=f"folders {self.bounds.depth} deep")
        *above, name = parts
        with self._folder(above) as folder:
            if name == OPAQUE:
                self._clear(folder, b"/".join(above))
            elif name.startswith(WHITEOUT * 2):
                # Metadata of an older format of layers.
                return
            elif name.startswith(WHITEOUT):
                if (hidden := name[len(WHITEOUT) :]) in (b"", b".", b".."):
                    raise odd("it hides what has no name")
                if b"/".join([*above, hidden]) not in self.fresh:
                    _remove(folder, hidden)
            else:
                self._make(member, folder, name)
                self._note(parts)
                if member.kind == FILE:
                    self._last = _Opened(above, os.dup(folder))

    def _put_beside(self, member: Member, parts: list[bytes]) -> bool:
        """Writes a new file into the folder of the last one, which nothing can have replaced meanwhile."""
        last = self._last
        if last is None or member.kind != FILE or parts[:-1] != last.parts or not parts:
            return False
        if parts[-1].startswith(WHITEOUT):
            return False
        self._make(member, last.fd, parts[-1])
        self._note(parts)
        return True

    def _forget(self) -> None:
        if self._last is not None:
            os.close(self._last.fd)
            self._last = None

    def _note(self, parts: list[bytes]) -> None:
        if not self._has_marks:
            return
        path = b"/".join(parts)
        self.work.name(path)
        while path and path not in self.fresh:
            self.fresh.add(path)
            path = path.rpartition(b"/")[0]

    def _make(self, member: Member, folder: int, name: bytes) -> None:
        if member.kind == FOLDER:
            if not _is_folder(folder, name):
                _remove(folder, name)
                os.mkdir(name, 0o700, dir_fd=folder)
            with opened(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder) as fd:
                _own(fd, member)
        elif member.kind == FILE:
            with held(_new_file(folder, name)) as fd:
                for chunk in member.chunks():
                    _write(fd, chunk)
                _own(fd, member)
                os.utime(fd, (member.mtime, member.mtime))
        elif member.kind == LINK:
            if not member.target:
                raise odd("a link in it leads nowhere")
            _remove(folder, name)
            os.symlink(member.target, name, dir_fd=folder)
            os.chown(name, _id(member.uid), _id(member.gid), dir_fd=folder, follow_symlinks=False)
        elif member.kind == HARD_LINK:
            self._link(member, folder, name)
        else:
            self.skipped += 1

    def _link(self, member: Member, folder: int, name: bytes) -> None:
        *above, first = _parts(member.target) or [b""]
        if not first:
            raise odd("a hard link in it leads nowhere")
        with self._folder(above, make=False) as source:
            seen = os.stat(first, dir_fd=source, follow_symlinks=False)
            if not stat.S_ISREG(seen.st_mode):
                raise odd("a hard link in it leads to something that is no file")
            here = os.fstat(folder)
            there = os.fstat(source)
            if (here.st_ino, name) == (there.st_ino, first):
                return
            _remove(folder, name)
            os.link(first, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    def _clear(self, folder: int, path: bytes) -> None:
        seen = os.fstat(folder)
        if (seen.st_dev, seen.st_ino) in self._cleared:
            return
        self._cleared.add((seen.st_dev, seen.st_ino))
        for name in os.listdir(folder):
            self.work.step()
            raw = os.fsencode(name)
            if (path + b"/" + raw if path else raw) not in self.fresh:
                _remove(folder, raw)

    @contextlib.contextmanager
    def _folder(self, parts: list[bytes], *, make: bool = True) -> Iterator[int]:
        """Opens a folder. Links on the way lead on inside the root, and missing folders are made."""
        path = b"/".join(parts) or b"."
        try:
            fd = _open_in(self.root, path)
        except FileNotFoundError:
            if not make or not parts:
                raise
            with self._folder(parts[:-1]) as above, contextlib.suppress(FileExistsError):
                os.mkdir(parts[-1], 0o755, dir_fd=above)
                # Independent of the server's umask.
                os.chmod(parts[-1], 0o755, dir_fd=above)
            fd = _open_in(self.root, path)
        with held(fd):
            yield fd


@brief_value_class
class _Opened:
    parts: list[bytes]
    fd: int


def _parts(path: bytes) -> list[bytes]:
    """Splits a name. Raises InvalidRequest for one that leads out of the folder."""
    if path.startswith(b"/"):
        raise odd("a path in it is absolute")
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise odd("a path in it leads upwards")
    if any(len(part) > 255 for part in parts):
        raise odd("a name in it is too long")
    return parts


def _open_in(root: int, path: bytes) -> int:
    how = struct.pack("=QQQ", _FOLDER_FLAGS, 0, _IN_ROOT | _NO_MAGICLINKS)
    fd: int = _libc.syscall(_OPENAT2, root, path, how, len(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def _new_file(folder: int, name: bytes) -> int:
    """Opens a new file. Whatever had this name is removed and never written through."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=folder)
    except FileExistsError:
        _remove(folder, name)
        return os.open(name, flags, 0o600, dir_fd=folder)


def _own(fd: int, member: Member) -> None:
    # The mode is set after the owner, because a change of owner clears the setuid bit.
    os.fchown(fd, _id(member.uid), _id(member.gid))
    os.fchmod(fd, member.mode)


def _id(number: int) -> int:
    return number if number <= _MOST_ID else _NOBODY


def _is_folder(folder: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove(folder: int, name: bytes) -> None:
    """Removes whatever it is; one that is gone already counts as success. It uses descriptors all the way and
    never follows a link.
    """
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(name, dir_fd=folder)


def _write(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]
