"""Walks a layer that a tenant wrote: no link is followed, no special file is opened, and everything is
bounded.

Every folder is opened by name relative to its parent, so that nothing in the layer can lead out. Names come
sorted, folders before their content: the same layer is always walked in the same order.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Conflict, TooLarge
from sandboxer.kernel.values import brief_value_class, value_class

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPAQUE = "trusted.overlay.opaque"
_REDIRECT = "trusted.overlay.redirect"


class Kind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    # It hides the same name in the lower tree.
    HIDDEN = "hidden"
    # A device, a FIFO or a socket: reported, never opened, never copied.
    SPECIAL = "special"


@value_class
class Bounds:
    """How much one layer may hold, and how long a walk may take."""

    bytes: int = 32 << 30
    entries: int = 2_000_000
    depth: int = 256
    seconds: float = 1800.0


@brief_value_class
class Entry:
    # The path from the root of the layer, without a leading slash.
    path: bytes
    kind: Kind
    info: os.stat_result
    folder_fd: int
    name: bytes
    target: bytes = b""
    is_opaque: bool = False
    redirect: bytes = b""


@dataclass(slots=True)
class Budget:
    """What is left of the bounds during one walk."""

    bounds: Bounds
    entries: int = 0
    bytes: int = 0
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends = time.monotonic() + self.bounds.seconds

    def count(self, entry: Entry) -> None:
        self.entries += 1
        if self.entries > self.bounds.entries:
            raise TooLarge(what="image", limit=f"{self.bounds.entries} files and folders")
        if entry.kind is Kind.FILE:
            # Its nominal size, because holes have to be read like anything else.
            self.bytes += entry.info.st_size
            if self.bytes > self.bounds.bytes:
                raise TooLarge(what="image", limit=f"{self.bounds.bytes >> 20} MB, holes included")
        self.check_time()

    def check_time(self) -> None:
        if time.monotonic() > self.ends:
            raise TooLarge(what="image", limit=f"{self.bounds.seconds:g} s to look at it")


def walk(root: int, bounds: Bounds) -> Iterator[Entry]:
    """Yields everything in the layer but its root. Blocks. An entry's descriptor is valid until the next
    entry is requested.

    Raises TooLarge past the bounds, Conflict for a layer that changes meanwhile.
    """
    budget = Budget(bounds)
    with contextlib.ExitStack() as closing:
        # Opened anew, because btrfs lists what existed when the descriptor was opened, and nothing newer.
        levels = [_Level(os.open(b".", _FOLDER, dir_fd=root), b"", closing)]
        while levels:
            level = levels[-1]
            if (name := next(level.names, None)) is None:
                levels.pop().close()
                continue
            entry = _look(level, name)
            budget.count(entry)
            yield entry
            if entry.kind is Kind.FOLDER:
                if len(levels) >= bounds.depth:
                    raise TooLarge(what="image", limit=f"folders {bounds.depth} deep")
                try:
                    fd = os.open(name, _FOLDER, dir_fd=level.fd)
                except FileNotFoundError:
                    # The caller has removed it.
                    continue
                levels.append(_Level(fd, entry.path + b"/", closing))


def _changed() -> Conflict:
    hint = "It is read again from its beginning: repeat the request."
    return Conflict(why="the layer changed while it was read", reason="altered", hint=hint)


def read(entry: Entry) -> Iterator[bytes]:
    """Yields the content of a regular file: exactly as many bytes as it had when it was examined."""
    with opened(entry.name, _FILE, dir_fd=entry.folder_fd) as fd:
        seen = os.fstat(fd)
        if (seen.st_ino, seen.st_size, stat.S_IFMT(seen.st_mode)) != (
            entry.info.st_ino,
            entry.info.st_size,
            stat.S_IFREG,
        ):
            raise _changed()
        left = seen.st_size
        while left:
            if not (chunk := os.read(fd, min(_CHUNK, left))):
                raise _changed()
            left -= len(chunk)
            yield chunk


class _Level:
    def __init__(self, fd: int, prefix: bytes, closing: contextlib.ExitStack) -> None:
        self.fd = fd
        self.prefix = prefix
        self._is_open = True
        closing.callback(self.close)
        self.names = iter(sorted(os.fsencode(name) for name in os.listdir(fd)))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.fd)


def _look(level: _Level, name: bytes) -> Entry:
    info = os.stat(name, dir_fd=level.fd, follow_symlinks=False)
    kind = kind_of(info)
    target, redirect, is_opaque = b"", b"", False
    if kind is Kind.LINK:
        target = os.readlink(name, dir_fd=level.fd)
    elif kind is Kind.FOLDER:
        is_opaque, redirect = _marks(level.fd, name)
    return Entry(level.prefix + name, kind, info, level.fd, name, target, is_opaque, redirect)


def kind_of(info: os.stat_result) -> Kind:
    if stat.S_ISREG(info.st_mode):
        return Kind.FILE
    if stat.S_ISDIR(info.st_mode):
        return Kind.FOLDER
    if stat.S_ISLNK(info.st_mode):
        return Kind.LINK
    if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
        return Kind.HIDDEN
    return Kind.SPECIAL


def _marks(folder_fd: int, name: bytes) -> tuple[bool, bytes]:
    """Returns what the overlay recorded about a folder. Nobody inside a sandbox can write that."""
    with opened(name, _FOLDER, dir_fd=folder_fd) as fd:
        names = os.listxattr(fd)
        is_opaque = _OPAQUE in names and os.getxattr(fd, _OPAQUE) == b"y"
        return is_opaque, os.getxattr(fd, _REDIRECT) if _REDIRECT in names else b""
