"""Holds what all acts of this backend share, opened once; and decides whether one more sandbox fits, before
anything is made.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakValueDictionary

from sandboxer.backends.contract import Capacity, Fingerprint, Resources
from sandboxer.backends.launch import Reach, Starter
from sandboxer.backends.namespaces.box import Box, BoxFolder, DeathWatch
from sandboxer.backends.namespaces.cgroups import Cgroups
from sandboxer.backends.namespaces.kept.copies import Copies, Counting
from sandboxer.backends.namespaces.kept.records import Heritage, HeritageFolder
from sandboxer.backends.namespaces.pool import MB, Pool
from sandboxer.backends.namespaces.settings import MASKED_PROC, NamespacesSettings, Overcommit
from sandboxer.backends.namespaces.uids import UidRanges, uids_of_processes
from sandboxer.kernel.errors import Broken, InvalidRequest, NoCapacity
from sandboxer.kernel.values import value_class

# Kept for the host itself whatever is promised.
HOST_MEMORY_MB = 512
HOST_PIDS = 2048
# Parts of what the pool may grow to: above the first an operator is warned, above the second nothing new is
# promised.
DISK_WARNS, DISK_REFUSES = 0.8, 0.9


@value_class
class Host:
    """Describes what the host has."""

    memory_mb: int
    cpus: int
    pids: int
    # What the pool may grow to, less what it needs itself, and what is used of it.
    disk_mb: int
    disk_used_mb: int = 0
    # Whether the pool has so little left that its own metadata needs it.
    is_disk_tight: bool = False

    @property
    def is_disk_scarce(self) -> bool:
        """Says whether so much of the disk is really used that existing sandboxes need the rest."""
        return self.disk_used_mb > self.disk_mb * DISK_REFUSES


@value_class
class Promised:
    """Sums what sandboxes were promised: running ones everything, stopped ones their disk."""

    memory_mb: int = 0
    vcpus: float = 0.0
    pids: int = 0
    disk_mb: int = 0
    # Of the pool, held by kept disks and copies of them after whoever wrote it is gone.
    kept_mb: int = 0

    def with_kept(self, kept_mb: int) -> Promised:
        return replace(self, kept_mb=kept_mb)

    def with_running(self, resources: Resources, sign: int = 1) -> Promised:
        return replace(
            self,
            memory_mb=self.memory_mb + sign * resources.memory_mb,
            vcpus=self.vcpus + sign * resources.vcpus,
            pids=self.pids + sign * resources.pids,
        )

    def with_disk(self, size_mb: int) -> Promised:
        return replace(self, disk_mb=self.disk_mb + size_mb)

    def as_resources(self) -> Resources:
        return Resources(vcpus=self.vcpus, memory_mb=self.memory_mb, disk_mb=self.disk_mb, pids=self.pids)


def budget(host: Host, overcommit: Overcommit) -> Promised:
    """Returns the most that may be promised."""
    return Promised(
        memory_mb=int(max(0, host.memory_mb - HOST_MEMORY_MB) * overcommit.memory),
        vcpus=host.cpus * overcommit.cpu,
        pids=int(max(0, host.pids - HOST_PIDS) * overcommit.pids),
        disk_mb=int(host.disk_mb * overcommit.disk),
    )


def admit(host: Host, overcommit: Overcommit, promised: Promised) -> None:
    """Raises NoCapacity when `promised`, the new sandbox included, is more than this host may promise."""
    limit = budget(host, overcommit)
    for resource, asked, allowed, unit in (
        ("memory", promised.memory_mb, limit.memory_mb, " MB (overcommit included)"),
        ("cpu", promised.vcpus, limit.vcpus, " CPUs (overcommit included)"),
        ("processes", promised.pids, limit.pids, " (overcommit included)"),
        # What is kept is there, and promised to nobody a second time.
        (
            "disk",
            promised.disk_mb + overcommit.disk * promised.kept_mb,
            limit.disk_mb,
            " MB (overcommit included)",
        ),
    ):
        if asked > allowed:
            raise NoCapacity(
                resource=resource,
                why=f"with it {asked:.9g} would be promised in all, of {allowed:.9g}{unit}",
            )


def check_single(host: Host, resources: Resources) -> None:
    """Refuses an order that even an empty host could not fill."""
    for resource, asked, unit, holder, has in (
        ("memory", resources.memory_mb, " MB", "host", host.memory_mb),
        ("cpu", resources.vcpus, " cpus", "host", host.cpus),
        ("processes", resources.pids, "", "host", host.pids),
        ("disk", resources.disk_mb, " MB", "pool", host.disk_mb),
    ):
        if asked > has:
            raise NoCapacity(resource=resource, why=f"{asked:.9g}{unit} asked, the {holder} has {has}")


LOCK_TIMEOUT_S = 10.0
# The empty tree, below disks that bring everything themselves.
SCRATCH = "scratch"
# In the place of an image's name, of kept disks that were taken of a volume. No image can be called so.
VOLUME = "@volume"
# `name@digest` is one tree for good; a plain name is a link to the newest of them.
_IMAGE_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,127}")


@dataclass(slots=True)
class BackendDependencies:
    name: str
    settings: NamespacesSettings
    boot_id: str
    host: Host
    pool: Pool
    cgroups: Cgroups
    boxes: BoxFolder
    ranges: UidRanges
    launcher: Starter
    reach: Reach
    deaths: DeathWatch
    threads: ThreadPoolExecutor
    # One thread that lets go of removed sandboxes' overlays; it may wait for the disk.
    unmounts: ThreadPoolExecutor
    copies: Copies
    heritages: HeritageFolder
    counting: Counting
    # Makes what this host can do what it can do by these means.
    adjust: Callable[[Fingerprint], Fingerprint]
    # The layer below every image (see `tools`).
    tools: Path
    promised: Promised = field(default_factory=Promised)
    # Every sandbox that is known to own something, by id.
    known: dict[str, Box] = field(default_factory=dict)
    locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    masked: tuple[str, ...] = ()
    # Set when disk was promised: the pool should grow before its new owner writes.
    promised_disk: asyncio.Event = field(default_factory=asyncio.Event)
    # Volumes whose disk is being exchanged: nobody may have one attached meanwhile.
    exchanged: set[str] = field(default_factory=set)
    # Why the backend itself ended a sandbox, until somebody looks at it.
    ended_for: dict[str, str] = field(default_factory=dict)
    # How often a volume is being taken right now: what is written of its owners must be of the disk taken.
    being_copied: Counter[str] = field(default_factory=Counter)

    def has_processes(self, box: Box) -> bool:
        """Says whether any of its processes can be alive: not after a reboot, whatever the record says."""
        return box.holds_processes and box.boot_id == self.boot_id

    def attached(self, volume_id: str) -> dict[str, bool]:
        """Returns which sandboxes have a volume attached, and whether read-only. A stopped one has
        nothing attached.
        """
        return {
            box.sandbox_id: is_read_only
            for box in self.known.values()
            if self.has_processes(box)
            for id_, is_read_only in box.volumes
            if id_ == volume_id
        }

    def remember_all(self) -> None:
        """Counts, at the start, what the recorded sandboxes were promised."""
        for sandbox_id in list(self.boxes.ids()):
            if (box := self.boxes.read(sandbox_id)) is None:
                self._remove_blank(sandbox_id)
                continue
            self.known[sandbox_id] = box
            self.promised = self.promised.with_disk(box.disk_mb)
            if self.has_processes(box):
                self.promised = self.promised.with_running(box.resources)
                if box.slot is not None:
                    self.ranges.claim(box.slot)
        for _, uids in uids_of_processes():
            for uid in uids:
                # Of a sandbox whose box cannot be read, or of a process that is in none.
                self.ranges.avoid(uid)
        volumes = self.pool.volume_ids()
        for volume_id in volumes:
            self.promised = self.promised.with_disk(self.pool.usage(volume_id).limit_bytes // MB)
        for heritage in list(self.heritages.known.values()):
            if heritage.is_kept or heritage.id in self.known or heritage.id in volumes:
                continue
            # A disk whose box cannot be read is somebody's all the same.
            if not self.pool.has_disk(heritage.id):
                self.heritages.remove(heritage.id)
        self.promised = self.promised.with_kept(self.counting.kept_mb())

    def _remove_blank(self, sandbox_id: str) -> None:
        """Removes the folder of a sandbox of which nothing else is there. Its record is the first thing of it
        and the last: without one, a spare that a killed server was making or removing would be nobody's.
        """
        if not self.pool.has_disk(sandbox_id) and sandbox_id not in self.cgroups.ids():
            self.boxes.remove_blank(sandbox_id)

    def promise(self, resources: Resources, *, disk: bool) -> None:
        """Promises resources before anything is made. Raises NoCapacity. Does not await between question
        and promise.
        """
        check_single(self.host, resources)
        self.check_not_tight()
        self.take_promise(self.promised.with_running(resources).with_disk(resources.disk_mb if disk else 0))

    def take_promise(self, wanted: Promised) -> None:
        """Makes `wanted` what is promised in all. Raises NoCapacity. Does not await between question and
        promise.
        """
        if wanted.disk_mb > self.promised.disk_mb:
            self._check_disk_left()
            self.promised_disk.set()
        self.check_fits(wanted)
        self.promised = wanted

    def check_fits(self, wanted: Promised) -> None:
        """Raises NoCapacity if this host may not promise so much in all."""
        admit(self.host, self._overcommit(), wanted)

    def _overcommit(self) -> Overcommit:
        overcommit = self.settings.overcommit
        return overcommit if self.pool.limits_all else replace(overcommit, disk=min(1.0, overcommit.disk))

    def check_not_tight(self) -> None:
        """Raises NoCapacity when nobody may run or keep anything more: whoever removes files of a disk that
        is also kept makes metadata grow, whatever the disk's limit.
        """
        # Where it was at the last look, space may have come back since.
        if self.host.is_disk_tight and self.pool.is_tight:
            raise NoCapacity(
                resource="disk",
                why="the storage pool has nothing left but what its own metadata needs",
                hint="Remove sandboxes or snapshots.",
            )

    def _check_disk_left(self) -> None:
        """Raises NoCapacity when nothing new should be promised, whatever else was promised. The last look at
        the pool decides where it has enough; where it had not, space may have come back since.
        """
        if self.host.is_disk_scarce:
            self.host = replace(self.host, disk_used_mb=self.pool.used_mb)
        if self.host.is_disk_scarce:
            used, most = self.host.disk_used_mb, self.host.disk_mb
            raise NoCapacity(
                resource="disk", why=f"{used} of the {most} MB that the storage pool may have are used"
            )

    def capacity(self) -> Capacity:
        """Returns what may be promised in all, what is promised, and what the pool's file system counts."""
        most = budget(self.host, self._overcommit())
        return Capacity(
            total=most.as_resources(),
            promised=self.promised.as_resources(),
            storage_kind=self.pool.kind.value,
            storage_size_mb=self.pool.size_mb,
            storage_used_mb=self.pool.used_mb,
            storage_most_mb=self.pool.most_mb(self.settings.pool_size_mb),
        )

    def record_kept(self, heritage: Heritage) -> Heritage:
        """Records a disk that was just kept, with the state by which a change of it is noticed. On any
        failure nothing is left of it. Blocks.
        """
        try:
            if (seen := self.copies.look(heritage.id)) is not None:
                heritage = replace(heritage, uuid=seen.uuid, changed=seen.changed)
            heritage = replace(heritage, at_most_bytes=self.counting.at_most(heritage.owners))
            self.heritages.write(heritage)
        except BaseException:
            self.copies.drop(heritage.id)
            raise
        return heritage

    def image_tree(self, name: str) -> str:
        """Returns the tree that an image's name means now. A disk stays a layer over it, even if the
        image is built anew.
        """
        if name == SCRATCH:
            return name
        path = self.settings.images_dir / name
        if not _IMAGE_NAME.fullmatch(name) or not path.is_dir():
            raise InvalidRequest(
                field="image",
                why=f"there is no image {name} on this host",
                hint="The operator builds it: sandboxer image build base."
                if name == "base"
                else "See which ones there are: GET /v1/images.",
            )
        target = os.path.basename(os.readlink(path)) if os.path.islink(path) else name
        return target if (self.settings.images_dir / target).is_dir() else name

    def lies_over(self) -> dict[str, str]:
        """Returns the tree below each disk; of a restored one both."""
        trees = {one.id: one.image for one in self.heritages.kept()}
        for box in list(self.known.values()):
            trees[box.sandbox_id] = box.image
            if (restored := self.pool.image_of(box.sandbox_id)) is not None:
                trees[f"{box.sandbox_id} (restored)"] = restored
        return trees

    def image_path(self, name: str) -> Path:
        if name == SCRATCH:
            self.settings.scratch_dir.mkdir(mode=0o755, exist_ok=True)
            # Whatever the umask: it is the root of sandboxes, and their users must be able to enter.
            self.settings.scratch_dir.chmod(0o755)
            return self.settings.scratch_dir
        path = self.settings.images_dir / self.image_tree(name)
        rootfs = path / "rootfs"
        return rootfs if rootfs.is_dir() else path

    def one_at_a_time(self, sandbox_id: str) -> asyncio.Lock:
        """Locks one sandbox: a destroy may come while it is still being made. The lock is kept as long as
        someone holds it or waits for it; otherwise a third caller would get another.
        """
        return self.locks.setdefault(sandbox_id, asyncio.Lock())


def measure_host(pool: Pool, settings: NamespacesSettings) -> Host:
    total_kb = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    return Host(
        memory_mb=total_kb // 1024,
        cpus=len(os.sched_getaffinity(0)),
        pids=int(Path("/proc/sys/kernel/pid_max").read_text()),
        disk_mb=usable_mb(pool.most_mb(settings.pool_size_mb), settings.pool_headroom_mb),
        disk_used_mb=pool.used_mb,
    )


def usable_mb(size_mb: int, headroom_mb: int) -> int:
    """Returns what disks may have of a pool: data in every chunk would leave no place for metadata."""
    return max(0, size_mb - max(headroom_mb, size_mb // 20))


def maskable() -> tuple[str, ...]:
    return tuple(name for name in MASKED_PROC if os.path.exists(f"/proc/{name}"))


def lock_state(run_dir: Path) -> int:
    """Locks the state folder for one server. The launcher's workers hold the lock too, so that none of a
    killed server's is still making something when the next one looks around. Blocks: call it in a thread.
    """
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(fd)
                raise Broken(why=f"another server uses the state folder {run_dir.parent}") from None
            time.sleep(0.02)
        else:
            return fd
