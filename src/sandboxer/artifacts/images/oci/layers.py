"""Writes a layer of an overlay, or a plain tree, as the tar that OCI calls a layer.

Hidden names become `.wh.` files, a folder that hides everything below it gets `.wh..wh..opq`, and a renamed
folder of the lower tree is written completely under its new name. Devices, FIFOs, sockets and attributes are
left out.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sandboxer.artifacts.images.oci.tar import END, Facts, header, padding
from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.tree import Bounds, Entry, Kind

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def plain_layer(root: int, bounds: Bounds) -> Iterator[bytes]:
    """Yields the layer of a whole tree."""
    links: dict[int, bytes] = {}
    for entry in tree.walk(root, bounds):
        yield from _written(entry, links)
    yield END


def diff_layer(layer: int, base: int, bounds: Bounds) -> Iterator[bytes]:
    """Yields the layer of what lies over a tree."""
    moved = _Moved(base, bounds)
    links: dict[int, bytes] = {}
    for entry in tree.walk(layer, bounds):
        if entry.kind is Kind.HIDDEN:
            if not moved.holds(entry.path):
                folder, slash, name = entry.path.rpartition(b"/")
                yield _marker(folder + slash + WHITEOUT + name)
            continue
        if entry.name.startswith(WHITEOUT):
            # Other tools would take it for a whiteout.
            continue
        yield from _written(entry, links)
        if entry.kind is Kind.FOLDER:
            if entry.is_opaque or entry.redirect:
                yield _marker(entry.path + b"/" + OPAQUE)
            yield from moved.under(entry)
    yield END


@dataclass(slots=True)
class _Moved:
    """Renamed folders of the lower tree: whatever of them is not in the layer itself has to be
    written too.
    """

    base: int
    bounds: Bounds
    # By path in the layer: the path in the lower tree.
    places: dict[bytes, bytes] = field(default_factory=dict)

    def holds(self, path: bytes) -> bool:
        return path.rpartition(b"/")[0] in self.places

    def under(self, entry: Entry) -> Iterator[bytes]:
        place = self._place(entry)
        if place is None:
            return
        self.places[entry.path] = place
        with _opened(self.base, place) as below:
            if below is None:
                return
            own = {os.fsencode(name) for name in _listed(entry)}
            links: dict[int, bytes] = {}
            for lower in tree.walk(below, self.bounds):
                if lower.path.partition(b"/")[0] not in own:
                    there = replace(lower, path=entry.path + b"/" + lower.path)
                    yield from _written(there, links)

    def _place(self, entry: Entry) -> bytes | None:
        folder = entry.path.rpartition(b"/")[0]
        above = self.places.get(folder)
        if entry.redirect.startswith(b"/"):
            return entry.redirect.lstrip(b"/")
        if entry.redirect:
            parent = folder if above is None else above
            return parent + b"/" + entry.redirect if parent else entry.redirect
        if above is None or entry.is_opaque:
            return None
        return above + b"/" + entry.name


def _written(entry: Entry, links: dict[int, bytes]) -> Iterator[bytes]:
    info = entry.info
    facts = Facts(mode=info.st_mode, uid=info.st_uid, gid=info.st_gid, mtime=int(info.st_mtime))
    if entry.kind is Kind.FOLDER:
        yield header(entry.path + b"/", kind=tarfile.DIRTYPE, **facts)
    elif entry.kind is Kind.LINK:
        yield header(entry.path, kind=tarfile.SYMTYPE, target=entry.target, **facts)
    elif entry.kind is Kind.FILE:
        if info.st_nlink > 1:
            first = links.setdefault(info.st_ino, entry.path)
            if first != entry.path:
                yield header(entry.path, kind=tarfile.LNKTYPE, target=first, **facts)
                return
        yield header(entry.path, kind=tarfile.REGTYPE, size=info.st_size, **facts)
        yield from tree.read(entry)
        yield padding(info.st_size)


def _marker(path: bytes) -> bytes:
    return header(path, kind=tarfile.REGTYPE, mode=0o600)


def _listed(entry: Entry) -> list[str]:
    fd = os.open(entry.name, _FOLDER, dir_fd=entry.folder_fd)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


@contextmanager
def _opened(root: int, path: bytes) -> Iterator[int | None]:
    """Opens a folder of the lower tree; yields None if there is none, or if a link is on the way."""
    fd = os.dup(root)
    try:
        for part in filter(None, path.split(b"/")):
            try:
                inner = os.open(part, _FOLDER, dir_fd=fd)
            except OSError:
                yield None
                return
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)
