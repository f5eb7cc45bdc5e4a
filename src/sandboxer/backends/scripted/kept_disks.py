"""Holds what outlives the fake's sandboxes: kept disks and volumes, in memory.

Kept disks are written out as folders of this host, changed there, and read back.

Volumes are disks of their own, seen in a folder of the sandbox that has them attached.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandboxer.backends.contract import KeptLayers, Order, VolumeMount
from sandboxer.backends.guest import FileKind
from sandboxer.backends.scripted.disk import Disk, Node
from sandboxer.backends.volume_paths import check_volume_paths
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound

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
            fd = os.open(place / "layer", os.O_RDONLY | os.O_DIRECTORY)
            try:
                change(fd)
            finally:
                os.close(fd)
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
        disk = self.disks.get(volume_id)
        if disk is None:
            raise NotFound(what="volume", id=volume_id)
        return disk

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
