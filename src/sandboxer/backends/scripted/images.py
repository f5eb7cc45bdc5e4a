"""Kept disks of the fake written out as folders of this host, worked on there, and read back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from sandboxer.backends.contract import KeptLayers
from sandboxer.backends.guest import FileKind
from sandboxer.backends.scripted.disk import Disk, Node

_LIMIT = 1 << 30


class ScriptedFolders:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="scripted-images-")

    def layers(self, disk_id: str, disk: Disk) -> KeptLayers:
        place = Path(self._folder.name) / disk_id
        if not place.exists():
            self._write_out(disk, place)
        return KeptLayers(base="scratch", tree=place / "base", layer=place / "layer")

    def shaped(self, disk_id: str, disk: Disk, change: Callable[[int], None] | None) -> Disk:
        """What became of the disk when `change` had worked on its folder."""
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
