"""Holds what all acts of this backend share, opened once."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

from sandboxer.backends.contract import Capacity, Resources
from sandboxer.backends.namespaces import admission
from sandboxer.backends.namespaces.admission import Host, Promised
from sandboxer.backends.namespaces.box import Box, BoxFolder, DeathWatch
from sandboxer.backends.namespaces.cgroups import Cgroups
from sandboxer.backends.namespaces.kept.copies import Copies, Counting
from sandboxer.backends.namespaces.kept.records import HeritageFolder
from sandboxer.backends.namespaces.launcher import Launcher
from sandboxer.backends.namespaces.pool import MB, Pool
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.namespaces.uids import UidRanges, uids_of_processes
from sandboxer.backends.namespaces.walls import MASKED_PROC
from sandboxer.kernel.errors import Broken, InvalidRequest

LOCK_TIMEOUT_S = 10.0
# The empty tree, below disks that bring everything themselves.
SCRATCH = "scratch"
# In the place of an image's name, of kept disks that were taken of a volume. No image can be called so.
VOLUME = "@volume"
# `name@digest` is one tree for good; a plain name is a link to the newest of them.
_IMAGE_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,127}")


@dataclass(slots=True)
class BackendDependencies:
    settings: NamespacesSettings
    boot_id: str
    host: Host
    pool: Pool
    cgroups: Cgroups
    boxes: BoxFolder
    ranges: UidRanges
    launcher: Launcher
    deaths: DeathWatch
    threads: ThreadPoolExecutor
    # One thread that lets go of removed sandboxes' overlays; it may wait for the disk.
    unmounts: ThreadPoolExecutor
    copies: Copies
    heritages: HeritageFolder
    counting: Counting
    promised: Promised = field(default_factory=Promised)
    # Every sandbox that is known to own something, by id.
    known: dict[str, Box] = field(default_factory=dict)
    locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    masked: tuple[str, ...] = ()
    # Volumes whose disk is being exchanged: nobody may have one attached meanwhile.
    exchanged: set[str] = field(default_factory=set)
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
        for sandbox_id in self.boxes.ids():
            box = self.boxes.read(sandbox_id)
            if box is None:
                continue
            self.known[sandbox_id] = box
            self.promised = self.promised.with_disk(box.resources)
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
            size_mb = self.pool.usage(volume_id).limit_bytes // MB
            disk = Resources(vcpus=0.0, memory_mb=0, disk_mb=size_mb, pids=0)
            self.promised = self.promised.with_disk(disk)
        for heritage in list(self.heritages.known.values()):
            if heritage.is_kept or heritage.id in self.known or heritage.id in volumes:
                continue
            # A disk whose box cannot be read is somebody's all the same.
            if not self.pool.has_disk(heritage.id):
                self.heritages.remove(heritage.id)
        self.promised = self.promised.with_kept(self.counting.kept_mb())

    def promise(self, resources: Resources, *, disk: bool) -> None:
        """Promises resources before anything is made. Raises NoCapacity. Does not await between question
        and promise.
        """
        admission.check_single(self.host, resources)
        wanted = self.promised.with_running(resources)
        if disk:
            wanted = wanted.with_disk(resources)
        admission.admit(self.host, self.settings.overcommit, wanted)
        self.promised = wanted

    def capacity(self) -> Capacity:
        """Returns what may be promised in all, what is promised, and what the pool's file system counts."""
        most = admission.budget(self.host, self.settings.overcommit)
        return Capacity(
            total=most.as_resources(),
            promised=self.promised.as_resources(),
            storage_kind=self.pool.kind.value,
            storage_size_mb=self.pool.size_mb,
            storage_used_mb=self.pool.used_mb,
        )

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
                hint=f"Build it on the host (`sandboxer image build {name}`), or name one that is there.",
            )
        target = os.path.basename(os.readlink(path)) if os.path.islink(path) else name
        return target if (self.settings.images_dir / target).is_dir() else name

    def lies_over(self) -> dict[str, str]:
        """Returns the tree below each disk; of a restored one both."""
        trees = {one.id: one.image for one in self.heritages.kept()}
        for box in list(self.known.values()):
            trees[box.sandbox_id] = box.image
            restored = self.pool.image_of(box.sandbox_id)
            if restored is not None:
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


def measure_host(pool: Pool, headroom_mb: int) -> Host:
    total_kb = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    return Host(
        memory_mb=total_kb // 1024,
        cpus=len(os.sched_getaffinity(0)),
        pids=int(Path("/proc/sys/kernel/pid_max").read_text()),
        # A pool whose data fills every chunk has nowhere left for its metadata.
        disk_mb=max(0, pool.size_mb - max(headroom_mb, pool.size_mb // 20)),
    )


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
