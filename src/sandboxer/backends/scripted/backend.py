"""`ext.scripted`: sandboxes that exist only in memory and fail when the script says so.

For tests of everything above the walls, and for trying the platform where no wall can be built. It isolates
nothing and says so; it passes the same contract suite as the others.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from sandboxer.backends.contract import (
    Capacity,
    Content,
    Fingerprint,
    Handle,
    KeptDisk,
    KeptLayers,
    KeptSizes,
    Lack,
    Observation,
    Order,
    Presence,
    Resources,
    Usage,
    VolumeUsage,
    Wall,
)
from sandboxer.backends.guest import Guest
from sandboxer.backends.reports import CleanupReport, CostEstimate, CostPart
from sandboxer.backends.scripted.box import Box, ScriptedGuest
from sandboxer.backends.scripted.disk import Disk, ScriptedFolders, ScriptedVolumes
from sandboxer.kernel.clock import Clock, SystemClock
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    InvalidRequest,
    NoCapacity,
    ProvisionFailed,
    or_not_found,
)

# More than any test asks for.
PLENTY = Resources(vcpus=1024, memory_mb=2**20, disk_mb=2**20, pids=2**20)
# The shipped canary asks its host for a report with a Python program; this is what the fake answers.
CANARY_ANSWER = {"python3 - <<'REPORT'": b'{"kernel": "scripted", "cpus": 1, "memory_total_mb": 256}\n'}


class Scripted:
    """The fake backend. `fail_on` says, per method, what to raise on each call in turn; None, or the end
    of the list, succeeds.
    """

    def __init__(
        self,
        *,
        name: str = "ext.scripted",
        clock: Clock | None = None,
        fail_on: Mapping[str, Iterable[Exception | None]] | None = None,
        boot_takes: timedelta = timedelta(0),
        walls: frozenset[Wall] = frozenset(Wall),
        images: Iterable[str] = ("base",),
        answers: Mapping[str, bytes] | None = None,
        facts: Mapping[str, str] | None = None,
        usd_per_hour: str = "0",
    ) -> None:
        self._name = name
        self._clock = clock or SystemClock()
        self._failures = {method: deque(errors) for method, errors in (fail_on or {}).items()}
        self._boot_takes = boot_takes
        self._walls = walls
        self._images = frozenset(images)
        # What it says of its host: an isolation, a region, GPUs.
        self._facts = {"isolation_level": "container", "kind": "scripted", **(facts or {})}
        # What its provider, who does not exist, would charge.
        self._usd_per_hour = Decimal(usd_per_hour)
        self._answers = {**CANARY_ANSWER, **(answers or {})}
        self._dead: asyncio.Queue[str] = asyncio.Queue()
        self.boxes: dict[str, Box] = {}
        self.kept_disks: dict[str, Disk] = {}
        self._volumes = ScriptedVolumes()
        self._folders = ScriptedFolders()
        self._mark: str | None = None
        # Every call in order, for tests: (method, sandbox id).
        self.calls: list[tuple[str, str]] = []

    @property
    def name(self) -> str:
        return self._name

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint(
            healthy=True,
            walls=self._walls,
            facts=self._facts,
            lacks=[Lack(what="walls", why="this backend is a fake", remedy="use ext.namespaces")],
        )

    async def capacity(self) -> Capacity:
        asked = [box.order.resources for box in self.boxes.values()]
        return Capacity(
            total=PLENTY,
            promised=Resources(
                vcpus=sum(one.vcpus for one in asked),
                memory_mb=sum(one.memory_mb for one in asked),
                disk_mb=sum(one.disk_mb for one in asked),
                pids=sum(one.pids for one in asked),
            ),
            storage_kind="memory",
            storage_size_mb=PLENTY.disk_mb,
            storage_used_mb=sum(box.disk.used_bytes for box in self.boxes.values()) // 2**20,
            storage_most_mb=PLENTY.disk_mb,
        )

    def check_image(self, image: str) -> None:
        if image not in self._images:
            raise InvalidRequest(field="image", why=f"there is no image {image}")

    async def provision(self, order: Order) -> Handle:
        self._begin("provision", order.sandbox_id)
        if order.origin is None:
            self.check_image(order.image)
        if order.sandbox_id in self.boxes:
            raise ProvisionFailed(step="claim", why=f"{order.sandbox_id} exists already")
        limit_bytes = order.resources.disk_mb * 2**20
        if order.origin in self._volumes.copies:
            raise InvalidRequest(field="image", why=f"{order.origin} was taken of a volume")
        disk = Disk(limit_bytes) if order.origin is None else self._copy_of(order.origin, limit_bytes)
        # As everywhere, no two have the same.
        disk.write("/etc/machine-id", secrets.token_hex(16).encode() + b"\n")
        self._volumes.attach(order, disk)
        box = Box(order, self._clock, self._answers, disk)
        self.boxes[order.sandbox_id] = box
        try:
            if self._boot_takes:
                await self._clock.sleep(self._boot_takes)
            self._begin("boot", order.sandbox_id)
        except BaseException:
            self._volumes.detach(order.sandbox_id)
            del self.boxes[order.sandbox_id]
            raise
        return Handle(sandbox_id=order.sandbox_id, backend=self._name, version=1)

    async def provision_with_key(self, order: Order, key: str) -> Handle:
        # The key is for nobody here: nothing of it is kept.
        self._begin("key", order.sandbox_id)
        return await self.provision(order)

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        parts = [CostPart(what="machine", amount=self._usd_per_hour * hours)] if self._usd_per_hour else []
        return CostEstimate(unit="usd", parts=tuple(parts))

    async def recover(self, handle: Handle) -> Observation:
        self._begin("recover", handle.sandbox_id)
        if (box := self.boxes.get(handle.sandbox_id)) is None:
            return Observation(presence=Presence.GONE, reason="never_made")
        return Observation(presence=box.presence, reason=box.reason)

    async def mark(self) -> str | None:
        return self._mark

    async def set_mark(self, text: str) -> None:
        self._mark = text

    async def disks(self) -> Sequence[str]:
        return [*self.boxes, *self.kept_disks, *await self.volumes()]

    async def spares(self) -> Sequence[str]:
        return [id_ for id_, box in self.boxes.items() if box.order.is_spare]

    async def give_away(self, sandbox_id: str) -> None:
        if (box := self.boxes.get(sandbox_id)) is not None:
            box.order = replace(box.order, is_spare=False)

    async def inventory(self) -> Sequence[str]:
        self._begin("inventory", "")
        return list(self.boxes)

    async def guest(self, handle: Handle) -> Guest:
        self._begin("guest", handle.sandbox_id)
        return ScriptedGuest(self._box(handle))

    async def usage(self, handle: Handle) -> Usage:
        self._begin("usage", handle.sandbox_id)
        box = self._box(handle)
        resources = box.order.resources
        running = sum(job.exit is None for job in box.jobs.values())
        return Usage(
            cpu_s=box.cpu_s,
            memory_bytes=2**20 * (1 + running),
            memory_limit_bytes=resources.memory_mb * 2**20,
            disk_bytes=box.disk.used_bytes,
            disk_limit_bytes=resources.disk_mb * 2**20,
            processes=1 + running,
            processes_limit=resources.pids,
        )

    async def teardown(self, sandbox_id: str) -> None:
        await self.teardown_with_report(sandbox_id)

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        self._begin("teardown", sandbox_id)
        box = self.boxes.pop(sandbox_id, None)
        self._volumes.detach(sandbox_id)
        if box is None:
            return CleanupReport()
        is_running = box.presence in (Presence.RUNNING, Presence.FROZEN)
        box.presence = Presence.GONE
        box.end_processes()
        return CleanupReport(
            removed=("processes", "disk") if is_running else ("disk",),
            left=tuple(one.volume_id for one in box.order.volumes),
        )

    async def deaths(self) -> AsyncIterator[str]:
        while True:
            yield await self._dead.get()

    async def close(self) -> None:
        """Does nothing: sandboxes keep running, and live as long as this object."""

    async def stop(self, handle: Handle) -> None:
        self._begin("stop", handle.sandbox_id)
        box = self._box(handle)
        box.end_processes()
        self._volumes.detach(handle.sandbox_id)
        box.presence, box.reason = Presence.STOPPED, "stopped"

    async def resume(self, handle: Handle, order: Order) -> Handle:
        self._begin("resume", handle.sandbox_id)
        box = self._box(handle)
        self._volumes.attach(order, box.disk)
        box.presence, box.reason = Presence.RUNNING, None
        return Handle(sandbox_id=handle.sandbox_id, backend=self._name, version=1)

    async def freeze(self, handle: Handle) -> None:
        self._begin("freeze", handle.sandbox_id)
        box = self._box(handle)
        box.thawed.clear()
        box.presence = Presence.FROZEN

    async def thaw(self, handle: Handle) -> None:
        self._begin("thaw", handle.sandbox_id)
        box = self._box(handle)
        box.presence = Presence.RUNNING
        box.thawed.set()

    async def take(self, handle: Handle, disk_id: str) -> KeptDisk:
        self._begin("take", handle.sandbox_id)
        if disk_id in self.kept_disks:
            raise Conflict(why=f"{disk_id} exists already")
        disk = self._box(handle).disk
        self.kept_disks[disk_id] = disk.copy(disk.limit_bytes)
        return KeptDisk(disk_id=disk_id, content=Content.FILES, at_most_bytes=disk.used_bytes)

    def _copy_of(self, disk_id: str, limit_bytes: int) -> Disk:
        source = self._kept(disk_id)
        if source.used_bytes > limit_bytes:
            raise InvalidRequest(field="disk_mb", why=f"{disk_id} holds more")
        return source.copy(limit_bytes)

    async def restore(self, handle: Handle, order: Order, disk_id: str, *, start: bool) -> Handle:
        self._begin("restore", handle.sandbox_id)
        disk = self._copy_of(disk_id, order.resources.disk_mb * 2**20)
        box = self._box(handle)
        box.end_processes()
        box.disk = disk
        self._volumes.detach(handle.sandbox_id)
        box.presence, box.reason = Presence.STOPPED, "stopped"
        if start:
            self._begin("restart", handle.sandbox_id)
            self._volumes.attach(order, disk)
            box.presence, box.reason = Presence.RUNNING, None
        return Handle(sandbox_id=handle.sandbox_id, backend=self._name, version=1)

    async def drop(self, disk_id: str) -> None:
        self._begin("drop", disk_id)
        self.kept_disks.pop(disk_id, None)
        self._volumes.copies.discard(disk_id)

    async def check_kept(self, disk_id: str) -> None:
        self._begin("check_kept", disk_id)
        self._kept(disk_id)

    async def sizes(self, disk_id: str) -> KeptSizes:
        self._begin("sizes", disk_id)
        used = self._kept(disk_id).used_bytes
        return KeptSizes(referenced_bytes=used, exclusive_bytes=used)

    async def layers(self, disk_id: str, *, suspected: bool = False) -> KeptLayers:
        self._begin("layers", disk_id)
        return self._folders.layers(disk_id, self._kept(disk_id))

    async def copy_kept(self, disk_id: str, new_id: str, change: Callable[[int], None] | None) -> KeptDisk:
        self._begin("copy_kept", disk_id)
        return self._shaped(new_id, self._kept(disk_id), change)

    async def fill_kept(self, new_id: str, fill: Callable[[int], None], *, limit_mb: int) -> KeptDisk:
        self._begin("fill_kept", new_id)
        return self._shaped(new_id, Disk(limit_mb * 2**20, folders=()), fill)

    def _shaped(self, new_id: str, disk: Disk, change: Callable[[int], None] | None) -> KeptDisk:
        made = self.kept_disks[new_id] = self._folders.shaped(new_id, disk, change)
        return KeptDisk(disk_id=new_id, content=Content.FILES, at_most_bytes=made.used_bytes)

    async def kept(self) -> Sequence[str]:
        self._begin("kept", "")
        return list(self.kept_disks)

    async def make_volume(self, volume_id: str, *, size_mb: int, origin: str | None = None) -> None:
        self._begin("make_volume", volume_id)
        self._volumes.make(volume_id, size_mb, origin, None if origin is None else self._kept(origin))

    async def resize_volume(self, volume_id: str, *, size_mb: int) -> None:
        self._begin("resize_volume", volume_id)
        if size_mb > PLENTY.disk_mb:
            raise NoCapacity(resource="disk", why="not even a fake has as much")
        self._volumes.resize(volume_id, size_mb)

    async def take_volume(self, volume_id: str, disk_id: str) -> KeptDisk:
        self._begin("take_volume", volume_id)
        disk = self._volumes.find(volume_id)
        if disk_id in self.kept_disks:
            raise Conflict(why=f"{disk_id} exists already")
        self.kept_disks[disk_id] = disk.copy(disk.limit_bytes)
        self._volumes.copies.add(disk_id)
        return KeptDisk(disk_id=disk_id, content=Content.FILES, at_most_bytes=disk.used_bytes)

    async def restore_volume(self, volume_id: str, disk_id: str) -> None:
        self._begin("restore_volume", volume_id)
        self._volumes.restore(volume_id, disk_id, self._kept(disk_id))

    async def drop_volume(self, volume_id: str) -> None:
        self._begin("drop_volume", volume_id)
        self._volumes.drop(volume_id)

    async def volume_usage(self, volume_id: str) -> VolumeUsage:
        self._begin("volume_usage", volume_id)
        disk = self._volumes.find(volume_id)
        return VolumeUsage(used_bytes=disk.used_bytes, limit_bytes=disk.limit_bytes)

    async def volumes(self) -> Sequence[str]:
        self._begin("volumes", "")
        return list(self._volumes.disks)

    async def resize(self, handle: Handle, resources: Resources) -> None:
        self._begin("resize", handle.sandbox_id)
        box = self._box(handle)
        if resources.memory_mb > PLENTY.memory_mb or resources.vcpus > PLENTY.vcpus:
            raise NoCapacity(resource="memory", why="not even a fake has as much")
        box.order = replace(box.order, resources=resources)

    def fail_next(self, method: str, error: Exception) -> None:
        """Adds failures to the script while it runs."""
        self._failures.setdefault(method, deque()).append(error)

    def die(self, sandbox_id: str, *, reason: str = "exited", keeps_disk: bool = True) -> None:
        """Ends a sandbox as if its PID 1 had ended by itself."""
        box = self.boxes[sandbox_id]
        box.end_processes()
        self._volumes.detach(sandbox_id)
        box.presence, box.reason = Presence.STOPPED, reason
        if not keeps_disk:
            del self.boxes[sandbox_id]
        self._dead.put_nowait(sandbox_id)

    def reboot(self) -> None:
        """Acts as if the host had rebooted: disks stay, processes do not, nothing is reported."""
        for sandbox_id, box in self.boxes.items():
            box.end_processes()
            self._volumes.detach(sandbox_id)
            box.presence, box.reason = Presence.STOPPED, "host_rebooted"

    def _begin(self, method: str, sandbox_id: str) -> None:
        self.calls.append((method, sandbox_id))
        failures = self._failures.get(method)
        failure = failures.popleft() if failures else None
        if failure is not None:
            raise failure

    def _kept(self, disk_id: str) -> Disk:
        return or_not_found(self.kept_disks.get(disk_id), what="kept disk", id=disk_id)

    def _box(self, handle: Handle) -> Box:
        if (box := self.boxes.get(handle.sandbox_id)) is None:
            raise BackendLost(why=f"{handle.sandbox_id} is gone")
        return box


@asynccontextmanager
async def open_backend(settings: object) -> AsyncIterator[Scripted]:
    """Opens the fake for the registry. What it makes ends with the server."""
    backend = Scripted()
    yield backend
    for sandbox_id in tuple(backend.boxes):
        await backend.teardown(sandbox_id)
