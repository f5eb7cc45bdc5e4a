"""Stores sandboxes' disks: one btrfs subvolume each, with a hard limit.

The first start makes the pool on a loop file, unless the state folder lies on btrfs already. Without btrfs it
falls back to plain folders, which have no limit; the fingerprint says so. Everything here blocks: callers run
it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandboxer.backends.namespaces import btrfs
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.kernel.errors import Broken
from sandboxer.kernel.ids import is_sandbox_id, is_volume_id

MB = 1024 * 1024
# Trying it out must not take a large disk from its owner; who wants more says so.
MAX_AUTOMATIC_MB = 32 * 1024
MIN_MB = 256
# Left to the host whatever the pool wants.
HOST_FREE_MB = 128
# `nodiscard` keeps the loop file allocated; `commit` bounds how long a removed disk's space stays away.
MOUNT_OPTIONS = "nosuid,nodev,noatime,nodiscard,commit=5"
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t{hostname}\n"
# Folders in which copies of disks are made; the sandbox's id follows (see `acts.c` of the launcher).
BIRTH = ".birth-"
# The same for copies made ahead; the kept disk's id and a random word follow.
SPARE = ".spare-"
# In a disk, beside upper and work: the tree it is a layer over, where that is not what its box says.
IMAGE_NOTE = "image"


# (what, path, value) in order; see `struct act` of the launcher.
DiskBirths = list[tuple[str, str, str | None]]


class PoolKind(StrEnum):
    LOOP = "btrfs on a loop file"
    NATIVE = "btrfs of the host"
    PLAIN = "plain folders"


@dataclass(frozen=True, slots=True)
class DiskUsage:
    used_bytes: int
    limit_bytes: int


class Pool:
    def __init__(self, path: Path, kind: PoolKind, *, quota: str, why_plain: str = "") -> None:
        self.path = path
        self.kind = kind
        # "simple", "full" or "none".
        self.quota = quota
        self.why_plain = why_plain
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._groups = ""
        if kind is not PoolKind.PLAIN:
            self._groups = f"/sys/fs/btrfs/{btrfs.filesystem_id(self._fd)}/qgroups"

    @property
    def limits_disks(self) -> bool:
        return self.quota != "none"

    @property
    def size_mb(self) -> int:
        seen = os.statvfs(self.path)
        return seen.f_blocks * seen.f_frsize // MB

    @property
    def used_mb(self) -> int:
        seen = os.statvfs(self.path)
        return (seen.f_blocks - seen.f_bfree) * seen.f_frsize // MB

    def is_in_place(self) -> bool:
        """Says whether the pool that was opened is still at its path: not after somebody has unmounted it."""
        there, opened = os.stat(self.path), os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)

    def disk(self, sandbox_id: str) -> Path:
        return self.path / sandbox_id

    def births(self, sandbox_id: str, *, limit_mb: int, hostname: str) -> DiskBirths:
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
        return acts

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
        try:
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self._remove(fd, "disk", place / "disk")
        finally:
            os.close(fd)
        with contextlib.suppress(FileNotFoundError):
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
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            number = btrfs.subvolume_id(fd)
        finally:
            os.close(fd)
        try:
            btrfs.delete_subvolume(parent_fd, name)
        except FileNotFoundError:
            return
        if self.limits_disks:
            btrfs.forget_quota(self._fd, number)

    @property
    def is_there(self) -> bool:
        """Says whether this path still shows the pool that was opened: it may have been unmounted since."""
        try:
            seen, opened = os.stat(self.path), os.fstat(self._fd)
        except FileNotFoundError:
            return False
        return (seen.st_dev, seen.st_ino) == (opened.st_dev, opened.st_ino)

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
            folder = f"{self._groups}/0_{self.number(sandbox_id)}"
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
        if not self.limits_disks:
            return
        fd = os.open(self.path / disk, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            btrfs.limit(fd, limit_mb * MB)
        finally:
            os.close(fd)

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
            return _number_in(f"{self._groups}/0_{number}/referenced")
        except FileNotFoundError:
            return 0

    def number(self, sandbox_id: str) -> int:
        fd = os.open(self.path / sandbox_id, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return btrfs.subvolume_id(fd)
        finally:
            os.close(fd)


def open_pool(settings: NamespacesSettings) -> Pool:
    """Opens the pool of this state folder: it is found, mounted again (after a reboot), or made."""
    path = settings.pool_dir
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    why = ""
    if os.path.ismount(path) and btrfs.is_btrfs(path):
        kind = PoolKind.LOOP
    elif settings.pool_file.exists():
        _mount(settings.pool_file, path)
        kind = PoolKind.LOOP
    elif btrfs.is_btrfs(path):
        kind = PoolKind.NATIVE
    else:
        kind, why = _make_pool(settings)
    os.chmod(path, 0o700)
    if kind is PoolKind.PLAIN:
        return Pool(path, kind, quota="none", why_plain=why)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return Pool(path, kind, quota=btrfs.enable_quota(fd))
    finally:
        os.close(fd)


def look_at_pool(settings: NamespacesSettings) -> Pool | None:
    """Returns the pool as the platform has opened it; None if it has not. Changes nothing; `close` it."""
    path = settings.pool_dir
    try:
        if not btrfs.is_btrfs(path):
            why = "btrfs could not be used when the platform first started"
            is_apart = settings.pool_file.exists()
            return None if is_apart else Pool(path, PoolKind.PLAIN, quota="none", why_plain=why)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        kind = PoolKind.LOOP if os.path.ismount(path) else PoolKind.NATIVE
        return Pool(path, kind, quota=btrfs.quota_of(fd))
    finally:
        os.close(fd)


def _make_pool(settings: NamespacesSettings) -> tuple[PoolKind, str]:
    if shutil.which("mkfs.btrfs") is None:
        return PoolKind.PLAIN, "mkfs.btrfs is not installed"
    if not _kernel_has_btrfs():
        return PoolKind.PLAIN, "this kernel has no btrfs"
    fresh = settings.pool_file.with_suffix(".new")
    size_mb = settings.pool_size_mb or _automatic_size_mb(settings.state_dir)
    _check_room(settings.state_dir, size_mb)
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # Really there: a sparse file on a full disk turns the pool read-only for every tenant.
        os.posix_fallocate(fd, 0, size_mb * MB)
    except OSError as error:
        os.unlink(fresh)
        raise Broken(why=f"a storage pool of {size_mb} MB could not be made: {error.strerror}") from None
    finally:
        os.close(fd)
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


def _automatic_size_mb(state_dir: Path) -> int:
    return max(MIN_MB, min(MAX_AUTOMATIC_MB, _free_mb(state_dir) // 2))


def _check_room(state_dir: Path, size_mb: int) -> None:
    """Checks the free space first: an allocation that fails half-way fills the host's disk for a moment."""
    free_mb = _free_mb(state_dir)
    if size_mb > free_mb - HOST_FREE_MB:
        raise Broken(why=f"no room for a storage pool of {size_mb} MB in {state_dir}: {free_mb} MB are free")


def _free_mb(folder: Path) -> int:
    seen = os.statvfs(folder)
    return seen.f_bavail * seen.f_frsize // MB


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
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    return 0 if text in ("none", "") else int(text)
