"""Volumes of the fake: disks of their own in memory, seen through a folder of whoever has them attached."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandboxer.backends.contract import Order, VolumeMount
from sandboxer.backends.scripted.disk import Disk
from sandboxer.backends.volume_paths import check_volume_paths
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound

MB = 1 << 20


@dataclass
class ScriptedVolumes:
    disks: dict[str, Disk] = field(default_factory=dict)
    # Kept disks that were taken of a volume.
    taken: set[str] = field(default_factory=set)
    # (volume, sandbox) that runs: whether read-only.
    attached: dict[tuple[str, str], bool] = field(default_factory=dict)

    def make(self, volume_id: str, size_mb: int, origin: str | None, source: Disk | None) -> None:
        if volume_id in self.disks:
            raise Conflict(why=f"{volume_id} exists already")
        if source is None:
            self.disks[volume_id] = Disk(size_mb * MB, folders=())
            return
        if origin not in self.taken:
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
        if disk_id not in self.taken:
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
            self._refuse_taken(order.sandbox_id, mount)

    def attach(self, order: Order, disk: Disk) -> None:
        """Its processes begin on this disk."""
        self.check(order)
        disk.detach_all()
        for mount in order.volumes:
            disk.attach(mount.path, self.find(mount.volume_id), read_only=mount.is_read_only)
            self.attached[mount.volume_id, order.sandbox_id] = mount.is_read_only

    def detach(self, sandbox_id: str) -> None:
        """Its processes ended."""
        self.attached = {key: only for key, only in self.attached.items() if key[1] != sandbox_id}

    def _refuse_taken(self, sandbox_id: str, mount: VolumeMount) -> None:
        for (id_, holder), is_read_only in self.attached.items():
            if id_ == mount.volume_id and holder != sandbox_id and not (is_read_only and mount.is_read_only):
                raise Conflict(why=f"{id_} is attached to {holder}", reason="attached")
