"""Copies of disks in the pool: read-only ones that are kept, and writable ones that take a disk's place.

Each is made in a folder of its own: a snapshot waits for the disk with its folder locked, and the pool's is
everybody's. Everything here blocks: callers run it in a thread. Plain folders are copied file by file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sandboxer.backends.namespaces import btrfs
from sandboxer.backends.namespaces.pool import BIRTH, IMAGE_NOTE, MB, Pool, PoolKind
from sandboxer.kernel.errors import Broken, Conflict, NoCapacity, NotFound
from sandboxer.kernel.ids import is_kept_id

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Copies:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def are_instant(self) -> bool:
        return self._pool.kind is not PoolKind.PLAIN

    def path(self, disk_id: str) -> Path:
        return self._pool.path / disk_id / "disk"

    def has(self, disk_id: str) -> bool:
        return os.path.isdir(self.path(disk_id))

    def ids(self) -> list[str]:
        return [name for name in os.listdir(self._pool.path) if is_kept_id(name)]

    def keep(self, sandbox_id: str, disk_id: str) -> None:
        """On any failure nothing is left."""
        folder = self._pool.path / disk_id
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            raise Conflict(why=f"{disk_id} exists already") from None
        try:
            with _told_of_a_full_pool():
                self._copy(self._pool.disk(sandbox_id), folder, read_only=True)
        except BaseException:
            self.drop(disk_id)
            raise

    def drop(self, disk_id: str) -> None:
        """Gone already is success."""
        self._pool.remove_copy(disk_id)

    def prepare(self, disk_id: str, sandbox_id: str, *, limit_mb: int, image: str) -> None:
        """A writable copy beside the sandbox's disk, with its limit and what it is a layer over."""
        place = self._pool.path / f"{BIRTH}{sandbox_id}"
        self.discard(sandbox_id)
        os.mkdir(place, 0o700)
        try:
            with _told_of_a_full_pool():
                self._copy(self.path(disk_id), place, read_only=False)
            if self._pool.limits_disks:
                with _opened(place / "disk") as fd:
                    btrfs.limit(fd, limit_mb * MB)
            (place / "disk" / IMAGE_NOTE).write_text(image)
        except BaseException:
            self.discard(sandbox_id)
            raise

    def prepare_empty(self, new_id: str, *, limit_mb: int, image: str) -> None:
        """As `prepare`, of a disk with nothing on it."""
        place = self._pool.path / f"{BIRTH}{new_id}"
        self.discard(new_id)
        os.mkdir(place, 0o700)
        disk = place / "disk"
        try:
            with _told_of_a_full_pool():
                if self.are_instant:
                    with _opened(place) as fd:
                        btrfs.create_subvolume(fd, "disk")
                else:
                    os.mkdir(disk, 0o700)
            if self._pool.limits_disks:
                with _opened(disk) as fd:
                    btrfs.limit(fd, limit_mb * MB)
            for name in ("upper", "work"):
                os.mkdir(disk / name)
                os.chmod(disk / name, 0o755)
            (disk / IMAGE_NOTE).write_text(image)
        except BaseException:
            self.discard(new_id)
            raise

    def copy_to(self, disk_id: str, folder: str) -> None:
        """A writable copy, in a new folder of the pool."""
        place = self._pool.path / folder
        os.mkdir(place, 0o700)
        with _told_of_a_full_pool():
            self._copy(self.path(disk_id), place, read_only=False)

    def prepared(self, new_id: str) -> Path:
        return self._pool.path / f"{BIRTH}{new_id}" / "disk"

    def prepared_number(self, new_id: str) -> int:
        with _opened(self.prepared(new_id)) as fd:
            return btrfs.subvolume_id(fd)

    def keep_prepared(self, new_id: str) -> None:
        """What was prepared under this id is kept, read-only, under it. On any failure nothing is left."""
        self.keep(f"{BIRTH}{new_id}/disk", new_id)

    def place(self, disk_id: str, sandbox_id: str, *, image: str) -> None:
        """For plain folders: the copy becomes the disk of a sandbox that has none yet."""
        self.prepare(disk_id, sandbox_id, limit_mb=0, image=image)
        os.rename(self._pool.path / f"{BIRTH}{sandbox_id}" / "disk", self._pool.disk(sandbox_id))
        self.discard(sandbox_id)

    def swap(self, sandbox_id: str) -> None:
        """The prepared copy and the disk change places, in one step; `discard` then removes the old one."""
        with _opened(self._pool.path) as fd:
            btrfs.exchange(fd, f"{BIRTH}{sandbox_id}/disk", sandbox_id)

    def discard(self, sandbox_id: str) -> None:
        """What `prepare` made, or what took its place. Gone already is success."""
        self._pool.remove_copy(f"{BIRTH}{sandbox_id}")

    def look(self, disk_id: str) -> btrfs.Subvolume | None:
        """None where nobody would notice a change."""
        if not self.are_instant:
            return None
        with _opened(self.path(disk_id)) as fd:
            return btrfs.look_at(fd)

    def number(self, disk_id: str) -> int:
        with _opened(self.path(disk_id)) as fd:
            return btrfs.subvolume_id(fd)

    def measure(self, disk_id: str) -> int:
        """Bytes of all files, one by one. Not in Python: a tenant can nest deeper than its stack."""
        argv = ["du", "--summarize", "--block-size=1", "--one-file-system", str(self.path(disk_id) / "upper")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            if not self.has(disk_id):
                raise NotFound(what="kept disk", id=disk_id)
            raise Broken(why=f"du: {done.stderr.strip()[:200]}")
        return int(done.stdout.split()[0])

    def _copy(self, source: Path, place: Path, *, read_only: bool) -> None:
        if not self.are_instant:
            argv = ["cp", "--archive", "--reflink=auto", str(source), str(place / "disk")]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                full = "No space left" in done.stderr
                raise OSError(errno.ENOSPC if full else errno.EIO, done.stderr.strip()[:200])
            return
        with _opened(source) as source_fd, _opened(place) as place_fd:
            btrfs.snapshot(source_fd, place_fd, "disk", read_only=read_only)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _told_of_a_full_pool() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoCapacity(resource="disk", why="the storage pool is full") from error
        raise
