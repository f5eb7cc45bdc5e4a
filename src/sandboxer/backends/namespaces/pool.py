"""Stores sandboxes' disks: one btrfs subvolume each, with a hard limit.

The first start makes the pool on a loop file, unless the state folder lies on btrfs already. Without btrfs it
falls back to plain folders, which have no limit; the fingerprint says so. Everything here blocks: callers run
it in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shutil
import stat
import subprocess
from enum import StrEnum
from pathlib import Path

from sandboxer.backends.launch import DiskBirths
from sandboxer.backends.namespaces import btrfs
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.shared import FOLDER, opened
from sandboxer.kernel.errors import Broken, NoCapacity, Unavailable
from sandboxer.kernel.values import brief_value_class, is_sandbox_id, is_volume_id

log = logging.getLogger(__name__)
MB = 1024 * 1024
# What the first start takes of the host's disk; the rest comes with use (`growth.py`).
FIRST_MB = 1024
MIN_MB = 256
# Chunks of metadata are not larger than this (in pools of less than 50 GB).
METADATA_MB = 256
TIGHT_MB, MOST_TIGHT_MB = 128, 1024
# Left to the host whatever the pool wants: a twentieth of its disk, within these bounds.
LEAST_RESERVE_MB, MOST_RESERVE_MB = 128, 10 * 1024
# `nodiscard` keeps the loop file allocated; `commit` bounds how long a removed disk's space stays away.
MOUNT_OPTIONS = "nosuid,nodev,noatime,nodiscard,commit=5"
# The sandbox's own address (guest/launcher/network.c), where names are asked for.
NAMESERVER = "nameserver 198.18.0.1\n"
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t{hostname}\n"
# Folders in which copies of disks are made; the sandbox's id follows (see `acts.c` of the launcher).
BIRTH = ".birth-"
# The same for copies made ahead; the kept disk's id and a random word follow.
SPARE = ".spare-"
# In a disk, beside upper and work: the tree it is a layer over, where that is not what its box says.
IMAGE_NOTE = "image"


class PoolKind(StrEnum):
    LOOP = "btrfs on a loop file"
    NATIVE = "btrfs of the host"
    PLAIN = "plain folders"


@brief_value_class
class DiskUsage:
    used_bytes: int
    limit_bytes: int


@brief_value_class
class Space:
    """What a pool on btrfs has at one moment, in megabytes; `growth.Room` says of each what it is."""

    size: int
    used: int
    idle_data: int
    unallocated: int
    for_metadata: int


class Pool:
    def __init__(self, path: Path, kind: PoolKind, *, quota: str, why_plain: str = "") -> None:
        self.path = path
        self.kind = kind
        # "simple", "full" or "none".
        self.quota = quota
        self.why_plain = why_plain
        self._fd = os.open(path, FOLDER)
        self._facts = ""
        if kind is not PoolKind.PLAIN:
            self._facts = f"/sys/fs/btrfs/{btrfs.filesystem_id(self._fd)}"

    @property
    def limits_disks(self) -> bool:
        return self.quota != "none"

    @property
    def limits_all(self) -> bool:
        """Says whether all disks together can be limited: only such a pool may be promised more than once."""
        return self.kind is PoolKind.LOOP and self.quota == "simple"

    def limit_all(self, limit_mb: int, *, is_first: bool) -> None:
        """Limits all disks together, so that data never takes what metadata needs: without that nobody could
        even remove a file. The first time after a start, disks of before are told that they belong to it.
        """
        if is_first:
            groups = [name.partition("_") for name in os.listdir(f"{self._facts}/qgroups")]
            btrfs.gather_all(
                self._fd, [int(number) for level, _, number in groups if level == "0" and number.isdigit()]
            )
        btrfs.limit_all(self._fd, limit_mb * MB)

    @property
    def size_mb(self) -> int:
        seen = os.statvfs(self.path)
        return seen.f_blocks * seen.f_frsize // MB

    @property
    def used_mb(self) -> int:
        """Returns what is written, on btrfs with what writers were promised and what metadata has taken."""
        if self.kind is PoolKind.PLAIN:
            seen = os.statvfs(self.path)
            return (seen.f_blocks - seen.f_bfree) * seen.f_frsize // MB
        return self.space().used

    def space(self) -> Space:
        """Looks at a pool on btrfs, at each number of the kernel's once."""
        data, metadata, system = (self._allocated(of, "disk_total") for of in ("data", "metadata", "system"))
        written = self._allocated("data", "bytes_used")
        promised = self._allocated("data", "bytes_pinned") + self._allocated("data", "bytes_may_use")
        names = ("bytes_used", "bytes_pinned", "bytes_reserved")
        free_of_metadata = metadata - sum(self._allocated("metadata", name) for name in names)
        unallocated = max(0, (size := self.size_mb) - data - metadata - system)
        return Space(
            size=size,
            used=written + promised + metadata + system,
            idle_data=max(0, data - written),
            unallocated=unallocated,
            for_metadata=unallocated + max(0, free_of_metadata),
        )

    @property
    def is_tight(self) -> bool:
        """Says whether so little is left for metadata that it needs all of it, should the pool not grow."""
        space = self.space()
        return space.for_metadata < tight_mb(space.size)

    def widen_metadata(self) -> None:
        """Gives metadata a tenth of a small pool, before data takes whatever is there: without that nobody
        could even remove a file from a pool whose data is full. A new file system has 8 MB of it, and what
        is moved into a new chunk gets one of that size. Blocks; milliseconds while there is little metadata.
        """
        has, used = self._allocated("metadata", "disk_total"), self._allocated("metadata", "disk_used")
        wanted = min(METADATA_MB, self.size_mb // 10)
        if has < wanted * 3 // 4 and used < METADATA_MB // 4 and self.space().unallocated > 2 * wanted:
            try:
                _run("btrfs", "balance", "start", "-m", str(self.path))
            except Broken as error:
                # Worth a word and no more: everything works until the pool is full.
                log.warning("metadata of the storage pool got no more space: %s", error)

    def gather_data(self) -> bool:
        """Moves data of a few nearly empty chunks together, so that metadata can have the rest. Says whether
        that gave anything back. Blocks; at most as long as moving half a gigabyte takes.
        """
        before = self.space().unallocated
        for fullest in (10, 30, 50, 70, 90):
            try:
                _run("btrfs", "balance", "start", f"-dusage={fullest},limit=2", str(self.path))
            except Broken as error:
                log.warning("data in the storage pool could not be moved together: %s", error)
                return False
            if self.space().unallocated > before:
                return True
        return False

    def _allocated(self, kind: str, name: str) -> int:
        return _number_in(f"{self._facts}/allocation/{kind}/{name}") // MB

    def most_mb(self, wanted_mb: int | None) -> int:
        """Returns the size that the pool may grow to now: what the operator said, or what the disk below it
        has left over a reserve; never less than the pool has.
        """
        size = self.size_mb
        if self.kind is not PoolKind.LOOP:
            return size
        folder = self.path.parent
        possible = size + self._beyond_mb(size) + max(0, _free_mb(folder) - _reserve_mb(folder))
        return max(size, possible if wanted_mb is None else min(possible, wanted_mb))

    def _beyond_mb(self, size_mb: int) -> int:
        """Returns what the loop file has beyond the end of the file system, as a killed server leaves it."""
        try:
            return max(0, os.stat(f"{self.path}.btrfs").st_size // MB - size_mb)
        except FileNotFoundError:
            return 0

    def device(self) -> str:
        """Returns the loop device on which the pool is mounted."""
        for line in Path("/proc/self/mounts").read_text().splitlines():
            source, where, kind = line.split()[:3]
            if kind == "btrfs" and where == str(self.path).replace(" ", "\\040"):
                return source
        raise FileNotFoundError(errno.ENOENT, "the storage pool is not mounted", str(self.path))

    def resize(self, size: str) -> None:
        """Resizes the file system, to so many bytes or to `max`. Raises OSError."""
        btrfs.resize(self._fd, size)

    def is_in_place(self) -> bool:
        """Says whether the pool that was opened is still at its path: not after somebody has unmounted it."""
        return os.path.samestat(os.stat(self.path), os.fstat(self._fd))

    def disk(self, sandbox_id: str) -> Path:
        return self.path / sandbox_id

    def births(
        self, sandbox_id: str, *, limit_mb: int, hostname: str, has_way_out: bool = False
    ) -> DiskBirths:
        """Returns what the launcher makes: an empty disk with its limit, and what must differ between any
        two sandboxes (never copied from an image or another disk).
        """
        path = str(self.path / sandbox_id)
        etc = f"{path}/upper/etc"
        acts: DiskBirths = [("folder" if self.kind is PoolKind.PLAIN else "subvolume", path, None)]
        if self.limits_disks:
            acts.append(("limit", path, str(limit_mb * MB)))
        acts += [("folder", folder, None) for folder in (f"{path}/upper", f"{path}/work", etc)]
        acts.append(("create", f"{etc}/machine-id", secrets.token_hex(16) + "\n"))
        acts.append(("create", f"{etc}/hostname", hostname + "\n"))
        acts.append(("create", f"{etc}/hosts", HOSTS.format(hostname=hostname)))
        return [*acts, ("create", f"{etc}/resolv.conf", NAMESERVER)] if has_way_out else acts

    def copy_births(self, sandbox_id: str, source: Path, *, limit_mb: int) -> DiskBirths:
        """Does the same as `births` for a disk that begins as a copy of a kept one."""
        path = str(self.path / sandbox_id)
        if self.kind is PoolKind.PLAIN:
            return []
        limit = [("limit", path, str(limit_mb * MB))] if self.limits_disks else []
        return [("snapshot", path, str(source)), *limit]

    def new_limit(self, sandbox_id: str, limit_mb: int) -> DiskBirths:
        return [("limit", str(self.path / sandbox_id), str(limit_mb * MB))] if self.limits_disks else []

    def remove_disk(self, sandbox_id: str) -> None:
        """Gone already is success."""
        self._remove(self._fd, sandbox_id, self.path / sandbox_id)
        if os.path.isdir(self.path / f"{BIRTH}{sandbox_id}"):
            self.remove_copy(f"{BIRTH}{sandbox_id}")

    def remove_copy(self, folder: str) -> None:
        """Removes the disk in this folder of the pool, and the folder. Gone already is success."""
        place = self.path / folder
        with contextlib.suppress(FileNotFoundError):
            with opened(place) as fd:
                self._remove(fd, "disk", place / "disk")
            os.rmdir(place)

    def sweep(self) -> None:
        """Removes copies that a killed server was making, or had replaced."""
        for name in os.listdir(self.path):
            if name.startswith((BIRTH, SPARE)):
                self.remove_copy(name)

    def _remove(self, parent_fd: int, name: str, path: Path) -> None:
        if self.kind is PoolKind.PLAIN:
            # Not in Python: a tenant can nest folders deeper than its stack.
            _run("rm", "-rf", "--one-file-system", str(path))
            return
        try:
            with opened(path) as fd:
                number = btrfs.subvolume_id(fd)
            btrfs.delete_subvolume(parent_fd, name)
        except FileNotFoundError:
            return
        if self.limits_disks:
            btrfs.forget_quota(self._fd, number)

    @property
    def is_there(self) -> bool:
        """Says whether this path still shows the pool that was opened: it may have been unmounted since."""
        try:
            return self.is_in_place()
        except FileNotFoundError:
            return False

    def has_disk(self, sandbox_id: str) -> bool:
        return os.path.isdir(self.path / sandbox_id)

    def image_of(self, sandbox_id: str) -> str | None:
        """Returns what a restored disk is a layer over: it and its image change in one step."""
        try:
            return (self.path / sandbox_id / IMAGE_NOTE).read_text()
        except FileNotFoundError:
            return None

    def usage(self, sandbox_id: str) -> DiskUsage:
        """Returns what a disk holds by the kernel's count; (0, 0) where there are no quotas."""
        if not self.limits_disks:
            return DiskUsage(0, 0)
        try:
            folder = f"{self._facts}/qgroups/0_{self.number(sandbox_id)}"
            return DiskUsage(_number_in(f"{folder}/referenced"), _number_in(f"{folder}/max_referenced"))
        except FileNotFoundError:
            return DiskUsage(0, 0)

    def ids(self) -> list[str]:
        # By path: a folder that is held open shows what was there when it was last read.
        return [name for name in os.listdir(self.path) if is_sandbox_id(name)]

    def volume_ids(self) -> list[str]:
        return [name for name in os.listdir(self.path) if is_volume_id(name)]

    def set_limit(self, disk: str, limit_mb: int) -> None:
        """Sets the limit of a disk. Does nothing where there are no quotas."""
        if self.limits_disks:
            btrfs.limit(self._fd, self.number(disk), limit_mb * MB)

    def close(self) -> None:
        os.close(self._fd)

    def unmount(self) -> None:
        """Unmounts the pool and detaches its loop file; only possible when no sandbox runs. For tests and
        for moving a pool.
        """
        if self.kind is PoolKind.LOOP:
            _run("umount", str(self.path))

    def charged(self, number: int) -> int:
        """Returns the bytes that the kernel counts for this subvolume, which may be long gone; 0 for none."""
        try:
            return _number_in(f"{self._facts}/qgroups/0_{number}/referenced")
        except FileNotFoundError:
            return 0

    def number(self, sandbox_id: str) -> int:
        with opened(self.path / sandbox_id) as fd:
            return btrfs.subvolume_id(fd)


def tight_mb(size_mb: int) -> int:
    """Returns from which rest for metadata on a pool of this size is tight. Between two looks it may take a
    hundred megabytes; a small pool has a tenth for it, and is not tight for being full of data.
    """
    return max(min(TIGHT_MB, size_mb // 12), min(MOST_TIGHT_MB, size_mb // 40))


def open_pool(settings: NamespacesSettings) -> Pool:
    """Opens the pool of this state folder: it is found, mounted again (after a reboot), or made."""
    path = settings.pool_dir
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    why = ""
    if os.path.ismount(path) and btrfs.is_btrfs(path):
        kind = PoolKind.LOOP
    elif settings.pool_file.exists():
        _check_whole(settings.pool_file)
        _mount(settings.pool_file, path)
        kind = PoolKind.LOOP
    elif btrfs.is_btrfs(path):
        kind = PoolKind.NATIVE
    else:
        kind, why = _make_pool(settings)
    if stat.S_IMODE(os.stat(path).st_mode) != 0o700:
        # Not without need: it is a change of the pool, and one without any space left takes none.
        os.chmod(path, 0o700)
    if kind is PoolKind.PLAIN:
        return Pool(path, kind, quota="none", why_plain=why)
    with opened(path) as fd:
        pool = Pool(path, kind, quota=btrfs.enable_quota(fd))
    if kind is PoolKind.LOOP:
        pool.widen_metadata()
    return pool


def _check_whole(file: Path) -> None:
    """Raises Unavailable for a file that its file system does not fit in any more: mounting says nothing of
    use.
    """
    with file.open("rb") as source:
        source.seek(_SUPERBLOCK)
        head = source.read(_SUPERBLOCK_TOTAL + 8)
        size = os.fstat(source.fileno()).st_size
    total = int.from_bytes(head[_SUPERBLOCK_TOTAL:], "little")
    if head[64:72] == b"_BHRfS_M" and size >= total:
        return
    expected = f"{total} bytes" if head[64:72] == b"_BHRfS_M" else "a btrfs file system"
    raise Unavailable(
        why=f"the storage pool {file} is damaged: {expected} expected, {size} bytes found",
        hint=f"Put the whole file back from a copy; or begin with an empty pool, without the disks that"
        f" were in this one: mv {file} {file}.damaged",
    )


def look_at_pool(settings: NamespacesSettings) -> Pool | None:
    """Returns the pool as the platform has opened it; None if it has not. Changes nothing; `close` it."""
    path = settings.pool_dir
    try:
        if not btrfs.is_btrfs(path):
            why = "btrfs could not be used when the platform first started"
            is_apart = settings.pool_file.exists()
            return None if is_apart else Pool(path, PoolKind.PLAIN, quota="none", why_plain=why)
        folder = opened(path)
    except OSError:
        return None
    with folder as fd:
        kind = PoolKind.LOOP if os.path.ismount(path) else PoolKind.NATIVE
        return Pool(path, kind, quota=btrfs.quota_of(fd))


def _make_pool(settings: NamespacesSettings) -> tuple[PoolKind, str]:
    if shutil.which("mkfs.btrfs") is None:
        return PoolKind.PLAIN, "mkfs.btrfs is not installed"
    if not _kernel_has_btrfs():
        return PoolKind.PLAIN, "this kernel has no btrfs"
    fresh = settings.pool_file.with_suffix(".new")
    size_mb = _first_size_mb(settings)
    with opened(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode=0o600) as fd:
        try:
            # Really there: a sparse file on a full disk turns the pool read-only for every tenant.
            os.posix_fallocate(fd, 0, size_mb * MB)
        except OSError as error:
            os.unlink(fresh)
            raise NoCapacity(
                resource="disk",
                why=f"a storage pool of {size_mb} MB could not be made: {error.strerror}",
                hint=_FREE,
            ) from None
    # -K: a discard would give the space back that was just taken.
    _run("mkfs.btrfs", "-q", "-K", "-m", "single", "-d", "single", "-L", "sandboxer", str(fresh))
    os.rename(fresh, settings.pool_file)
    try:
        _mount(settings.pool_file, settings.pool_dir)
    except Broken as error:
        # No loop devices, as in many containers. Nothing is lost yet: the file was made a moment ago.
        os.unlink(settings.pool_file)
        return PoolKind.PLAIN, str(error.facts["why"])
    return PoolKind.LOOP, ""


def _kernel_has_btrfs() -> bool:
    if "btrfs" in Path("/proc/filesystems").read_text():
        return True
    return subprocess.run(["modprobe", "btrfs"], capture_output=True, check=False).returncode == 0


# Where btrfs says what it is, and how large.
_SUPERBLOCK, _SUPERBLOCK_TOTAL = 64 * 1024, 0x70
_FREE = "Free some space there, or choose another disk with --state-dir."


def _first_size_mb(settings: NamespacesSettings) -> int:
    """Looks at the free space first: an allocation that fails half-way fills the host's disk for a moment."""
    free = _free_mb(settings.state_dir)
    most_mb = min(settings.pool_size_mb or free, free - LEAST_RESERVE_MB)
    size_mb = min(FIRST_MB, most_mb)
    if most_mb < MIN_MB:
        raise NoCapacity(
            resource="disk",
            why=f"a storage pool in {settings.state_dir} needs {MIN_MB + LEAST_RESERVE_MB} MB,"
            f" and {free} MB are free",
            hint=_FREE,
        )
    return size_mb


def _free_mb(folder: Path) -> int:
    seen = os.statvfs(folder)
    return seen.f_bavail * seen.f_frsize // MB


def _reserve_mb(folder: Path) -> int:
    """Returns what the pool leaves free on the disk that it lies on."""
    seen = os.statvfs(folder)
    return max(LEAST_RESERVE_MB, min(MOST_RESERVE_MB, seen.f_blocks * seen.f_frsize // MB // 20))


def _mount(file: Path, path: Path) -> None:
    """Mounts through a loop device that bypasses the host's page cache, and detaches itself when
    unmounted.
    """
    device = _run("losetup", "--find", "--show", "--nooverlap", str(file)).strip()
    subprocess.run(["losetup", "--direct-io=on", device], capture_output=True, check=False)
    try:
        _run("mount", "-t", "btrfs", "-o", MOUNT_OPTIONS, device, str(path))
    finally:
        # In use it only marks the device to go with its last user.
        subprocess.run(["losetup", "--detach", device], capture_output=True, check=False)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(why=f"{argv[0]}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _number_in(path: str) -> int:
    # Without Python's layers above a file, which cost more than the kernel: pools are looked at often.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, 64).strip()
    finally:
        os.close(fd)
    return 0 if text in (b"none", b"") else int(text)
