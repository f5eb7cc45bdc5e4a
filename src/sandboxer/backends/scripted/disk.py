"""Implements a disk in memory: folders, files, links, FIFOs, with the errors a real one gives. It decides
nothing and never awaits.

Holds what outlives the fake's sandboxes: kept disks and volumes, in memory.

Kept disks are written out as folders of this host, changed there, and read back.

Volumes are disks of their own, seen in a folder of the sandbox that has them attached.
"""

from __future__ import annotations

import os
import stat as modes
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from sandboxer.backends.contract import KeptLayers, Order, VolumeMount
from sandboxer.backends.guest import FileChange, FileEvent, FileInfo, FileKind
from sandboxer.backends.shared import check_volume_paths, opened
from sandboxer.kernel.errors import (
    Conflict,
    DirectoryNotEmpty,
    DiskFull,
    GuestRefused,
    InvalidRequest,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    or_not_found,
)
from sandboxer.kernel.values import brief_value_class

MAX_LINKS = 40
_FOLDERS = ("/tmp", "/root", "/etc", "/bin", "/workspace")
CHUNK = 64 * 1024
# Names and numbers of everybody who is known inside.
USERS = {"root": 0, "user": 1000, "nobody": 65534, "0": 0, "1000": 1000, "65534": 65534}


@dataclass(slots=True)
class Node:
    kind: FileKind
    mode: int
    data: bytes = b""
    target: str = ""
    children: dict[str, Node] = field(default_factory=dict)
    uid: int = 0
    attributes: dict[str, bytes] = field(default_factory=dict)
    modified_at: float = field(default_factory=time.time)


@brief_value_class
class _Mount:
    disk: Disk
    read_only: bool


class Disk:
    def __init__(self, limit_bytes: int, *, folders: tuple[str, ...] = _FOLDERS) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._listeners: list[Callable[[FileEvent], None]] = []
        self._root = Node(FileKind.DIRECTORY, 0o755)
        # Whose what is made now shall be.
        self.maker = 0
        # By path: other disks that are seen there.
        self._mounts: dict[str, _Mount] = {}
        for folder in folders:
            self.mkdir(folder, 0o755, parents=True)

    def copy(self, limit_bytes: int) -> Disk:
        """Returns a copy of the disk as it is now; nobody watches the copy."""
        made = Disk(limit_bytes)
        with self._unmounted():
            made._root = deepcopy(self._root)
        made.used_bytes = self.used_bytes
        return made

    def attach(self, path: str, disk: Disk, *, read_only: bool) -> None:
        """Shows another disk's root at this path from now on."""
        self.mkdir(path, 0o755, parents=True)
        folder, name = self._place(path, parents=False)
        folder.children[name] = disk._root
        self._mounts[path] = _Mount(disk, read_only)

    def detach_all(self) -> None:
        mounts, self._mounts = self._mounts, {}
        for path in mounts:
            folder, name = self._place(path, parents=False)
            folder.children[name] = Node(FileKind.DIRECTORY, 0o755)

    @contextmanager
    def _unmounted(self) -> Iterator[None]:
        mounts = self._mounts
        self.detach_all()
        try:
            yield
        finally:
            for path, mount in mounts.items():
                self.attach(path, mount.disk, read_only=mount.read_only)

    def _counted(self, path: str) -> Disk:
        """Returns the disk whose limit counts for what is written there. Raises as a read-only disk does."""
        for above, mount in self._mounts.items():
            if f"{path}/".startswith(f"{above}/"):
                if mount.read_only:
                    raise GuestRefused(path=path, errno_name="EROFS")
                return mount.disk
        return self

    def listen(self, listener: Callable[[FileEvent], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def find(self, path: str, *, follow: bool = True) -> tuple[str, Node]:
        """Returns a node and its path with links resolved."""
        return self._walk(path, follow=follow, links=0)

    def info(self, path: str, *, follow: bool = True) -> FileInfo:
        real, node = self.find(path, follow=follow)
        return _info(real if follow else path, node)

    def below(self, path: str, depth: int) -> Iterator[FileInfo]:
        real, node = self.find(path)
        if node.kind is not FileKind.DIRECTORY:
            raise NotADirectory(path=path, errno_name="ENOTDIR")
        for name, child in tuple(node.children.items()):
            inner = _join(real, name)
            yield _info(inner, child)
            if depth > 1 and child.kind is FileKind.DIRECTORY:
                yield from self.below(inner, depth - 1)

    def write(self, path: str, data: bytes, *, mode: int | None = None, parents: bool = False) -> FileInfo:
        folder, name = self._place(path, parents=parents)
        if (old := folder.children.get(name)) is not None and old.kind is FileKind.SYMLINK:
            # As rename over a link does: the link is replaced, not followed.
            old = None
        if old is not None and old.kind is FileKind.DIRECTORY:
            raise IsADirectory(path=path, errno_name="EISDIR")
        if old is not None and old.kind is FileKind.OTHER:
            raise GuestRefused(path=path, errno_name="ENXIO")
        grown = len(data) - (0 if old is None else len(old.data))
        counted = self._counted(path)
        if counted.used_bytes + grown > counted.limit_bytes:
            raise DiskFull(path=path, errno_name="EDQUOT")
        counted.used_bytes += grown
        kept = 0o644 if old is None else old.mode
        folder.children[name] = Node(FileKind.FILE, kept if mode is None else mode, data=data, uid=self.maker)
        self._tell(path, FileChange.CREATED if old is None else FileChange.MODIFIED)
        return self.info(path)

    def make(self, path: str, node: Node) -> None:
        """Makes a link or FIFO where nothing is."""
        self._counted(path)
        folder, name = self._place(path, parents=False)
        if name in folder.children:
            raise PathExists(path=path, errno_name="EEXIST")
        folder.children[name] = node
        self._tell(path, FileChange.CREATED)

    def mkdir(self, path: str, mode: int, *, parents: bool) -> None:
        if not _parts(path):
            if parents:
                return
            raise PathExists(path=path, errno_name="EEXIST")
        folder, name = self._place(path, parents=parents)
        if (old := folder.children.get(name)) is not None:
            if parents and old.kind is FileKind.DIRECTORY:
                return
            raise PathExists(path=path, errno_name="EEXIST")
        self._counted(path)
        folder.children[name] = Node(FileKind.DIRECTORY, mode, uid=self.maker)
        self._tell(path, FileChange.CREATED)

    def move(self, source: str, target: str, *, overwrite: bool) -> None:
        start, name = self._place(source, parents=False)
        if name not in start.children:
            raise PathNotFound(path=source, errno_name="ENOENT")
        end, new_name = self._place(target, parents=False)
        if (old := end.children.get(new_name)) is not None and not overwrite:
            raise PathExists(path=target, errno_name="EEXIST")
        if old is not None and old.children:
            raise DirectoryNotEmpty(path=target, errno_name="ENOTEMPTY")
        self._counted(source)
        self._counted(target)
        end.children[new_name] = start.children.pop(name)
        self._tell(source, FileChange.MOVED)
        self._tell(target, FileChange.MOVED)

    def remove(self, path: str, *, recursive: bool) -> None:
        folder, name = self._place(path, parents=False)
        if (node := folder.children.get(name)) is None:
            raise PathNotFound(path=path, errno_name="ENOENT")
        if node.children and not recursive:
            raise DirectoryNotEmpty(path=path, errno_name="ENOTEMPTY")
        self._counted(path).used_bytes -= _size(node)
        del folder.children[name]
        self._tell(path, FileChange.REMOVED)

    def _place(self, path: str, *, parents: bool) -> tuple[Node, str]:
        """Returns the folder that contains something, and its name there."""
        if not (parts := _parts(path)):
            raise IsADirectory(path=path, errno_name="EISDIR")
        above = "/" + "/".join(parts[:-1])
        if parents:
            for count in range(1, len(parts)):
                step = "/" + "/".join(parts[:count])
                try:
                    self.find(step)
                except PathNotFound:
                    self.mkdir(step, 0o755, parents=False)
        _, folder = self.find(above)
        if folder.kind is not FileKind.DIRECTORY:
            raise NotADirectory(path=above, errno_name="ENOTDIR")
        return folder, parts[-1]

    def _walk(self, path: str, *, follow: bool, links: int) -> tuple[str, Node]:
        if links > MAX_LINKS:
            raise GuestRefused(path=path, errno_name="ELOOP")
        here, node = "/", self._root
        parts = _parts(path)
        for index, name in enumerate(parts):
            if node.kind is not FileKind.DIRECTORY:
                raise NotADirectory(path=path, errno_name="ENOTDIR")
            if (child := node.children.get(name)) is None:
                raise PathNotFound(path=path, errno_name="ENOENT")
            is_last = index == len(parts) - 1
            if child.kind is FileKind.SYMLINK and (follow or not is_last):
                rest = "/".join(parts[index + 1 :])
                there = child.target if child.target.startswith("/") else _join(here, child.target)
                return self._walk(f"{there}/{rest}", follow=follow, links=links + 1)
            here, node = _join(here, name), child
        return here, node

    def _tell(self, path: str, change: FileChange) -> None:
        for listener in tuple(self._listeners):
            listener(FileEvent(path="/" + "/".join(_parts(path)), change=change))


def _parts(path: str) -> list[str]:
    """Splits a path. `..` is resolved textually: the fake has no folder with two parents."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def _join(folder: str, name: str) -> str:
    return folder.rstrip("/") + "/" + name


def _size(node: Node) -> int:
    return len(node.data) + sum(_size(child) for child in node.children.values())


def _info(path: str, node: Node) -> FileInfo:
    return FileInfo(
        path=path,
        kind=node.kind,
        size=len(node.data),
        mode=modes.S_IMODE(node.mode),
        uid=node.uid,
        gid=node.uid,
        modified_at=node.modified_at,
        link_target=node.target if node.kind is FileKind.SYMLINK else None,
    )


_LIMIT = 1 << 30
MB = 1 << 20


class ScriptedFolders:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="scripted-images-")

    def layers(self, disk_id: str, disk: Disk) -> KeptLayers:
        place = Path(self._folder.name) / disk_id
        if not place.exists():
            self._write_out(disk, place)
        return KeptLayers(base="scratch", tree=place / "base", layer=place / "layer")

    def shaped(self, disk_id: str, disk: Disk, change: Callable[[int], None] | None) -> Disk:
        """Returns the disk after `change` has worked on its folder."""
        place = Path(self._folder.name) / disk_id
        self._write_out(disk, place)
        if change is not None:
            with opened(place / "layer") as fd:
                change(fd)
        made = Disk(_LIMIT)
        made._root = _read(place / "layer")
        made.used_bytes = sum(len(node.data) for node in _all(made._root))
        return made

    def _write_out(self, disk: Disk, place: Path) -> None:
        (place / "base").mkdir(parents=True)
        _write(disk._root, place / "layer")


def _write(node: Node, path: Path) -> None:
    if node.kind is FileKind.DIRECTORY:
        path.mkdir()
        for name, child in node.children.items():
            _write(child, path / name)
    elif node.kind is FileKind.FILE:
        path.write_bytes(node.data)
        path.chmod(node.mode)
    elif node.target:
        path.symlink_to(node.target)


def _read(path: Path) -> Node:
    if path.is_symlink():
        return Node(FileKind.SYMLINK, 0o777, target=os.readlink(path))
    mode = path.stat().st_mode & 0o7777
    if path.is_dir():
        node = Node(FileKind.DIRECTORY, mode)
        node.children = {child.name: _read(child) for child in path.iterdir()}
        return node
    return Node(FileKind.FILE, mode, data=path.read_bytes())


def _all(node: Node) -> list[Node]:
    return [node, *(one for child in node.children.values() for one in _all(child))]


@dataclass
class ScriptedVolumes:
    disks: dict[str, Disk] = field(default_factory=dict)
    # Kept disks that were taken of a volume.
    copies: set[str] = field(default_factory=set)
    # (volume, sandbox) that runs: whether read-only.
    attached: dict[tuple[str, str], bool] = field(default_factory=dict)

    def make(self, volume_id: str, size_mb: int, origin: str | None, source: Disk | None) -> None:
        if volume_id in self.disks:
            raise Conflict(why=f"{volume_id} exists already")
        if source is None:
            self.disks[volume_id] = Disk(size_mb * MB, folders=())
            return
        if origin not in self.copies:
            raise InvalidRequest(field="from_snapshot", why=f"{origin} was not taken of a volume")
        if source.used_bytes > size_mb * MB:
            raise InvalidRequest(field="size_mb", why=f"{origin} holds more")
        self.disks[volume_id] = source.copy(size_mb * MB)

    def find(self, volume_id: str) -> Disk:
        return or_not_found(self.disks.get(volume_id), what="volume", id=volume_id)

    def resize(self, volume_id: str, size_mb: int) -> None:
        disk = self.find(volume_id)
        if disk.used_bytes > size_mb * MB:
            raise Conflict(why=f"{volume_id} holds more", reason="too_small")
        disk.limit_bytes = size_mb * MB

    def restore(self, volume_id: str, disk_id: str, source: Disk) -> None:
        disk = self.find(volume_id)
        if disk_id not in self.copies:
            raise InvalidRequest(field="snapshot", why=f"{disk_id} was not taken of a volume")
        if source.used_bytes > disk.limit_bytes:
            raise InvalidRequest(field="size_mb", why=f"{disk_id} holds more")
        self._refuse_attached(volume_id)
        self.disks[volume_id] = source.copy(disk.limit_bytes)

    def drop(self, volume_id: str) -> None:
        self._refuse_attached(volume_id)
        self.disks.pop(volume_id, None)

    def _refuse_attached(self, volume_id: str) -> None:
        for (id_, holder), _ in self.attached.items():
            if id_ == volume_id:
                raise Conflict(why=f"{volume_id} is attached to {holder}", reason="attached")

    def check(self, order: Order) -> None:
        check_volume_paths(order.volumes)
        for mount in order.volumes:
            self.find(mount.volume_id)
            self._refuse_existing(order.sandbox_id, mount)

    def attach(self, order: Order, disk: Disk) -> None:
        """Attaches a sandbox's volumes to its disk as its processes begin."""
        self.check(order)
        disk.detach_all()
        for mount in order.volumes:
            disk.attach(mount.path, self.find(mount.volume_id), read_only=mount.is_read_only)
            self.attached[mount.volume_id, order.sandbox_id] = mount.is_read_only

    def detach(self, sandbox_id: str) -> None:
        """Detaches a sandbox's volumes as its processes end."""
        self.attached = {key: only for key, only in self.attached.items() if key[1] != sandbox_id}

    def _refuse_existing(self, sandbox_id: str, mount: VolumeMount) -> None:
        for (id_, holder), is_read_only in self.attached.items():
            if id_ == mount.volume_id and holder != sandbox_id and not (is_read_only and mount.is_read_only):
                raise Conflict(why=f"{id_} is attached to {holder}", reason="attached")
