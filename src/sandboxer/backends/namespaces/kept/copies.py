"""Copies disks in the pool: read-only ones that are kept, and writable ones that replace a disk.

Each is made in a folder of its own: a snapshot waits for the disk with its folder locked, and the pool's is
everybody's. Everything here blocks: callers run it in a thread. Plain folders are copied file by file.

`Spares` are copies of a kept disk made ahead of a batch, all in the same moment. Each snapshot waits for a
commit of the whole pool, and every commit makes the host write its journal, for which everybody waits who
makes a file. Those that begin at the same moment share one: a hundred take a few commits instead of a
hundred. Everything here blocks.

`Counting` says how much of the pool is held by nobody's limit: written by sandboxes that are gone, kept by
others. The kernel counts what is written for the disk that wrote it, and goes on counting it there as long as
anyone holds it. While that sandbox lives, its own limit covers it; afterwards it must be promised here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sandboxer.backends.namespaces import btrfs
from sandboxer.backends.namespaces.kept.records import Heritage, HeritageFolder, Owner
from sandboxer.backends.namespaces.pool import BIRTH, IMAGE_NOTE, MB, SPARE, Pool, PoolKind
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Broken, Conflict, NoCapacity, NotFound
from sandboxer.kernel.values import is_kept_id

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# For a hundred copies one thread took 100 commits, 32 took 6, a hundred took 4 and more time.
_AT_ONCE = 32


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
        """Keeps a read-only copy of a disk. On any failure nothing is left."""
        folder = self._pool.path / disk_id
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            raise Conflict(why=f"{disk_id} exists already") from None
        try:
            with _full_pool_refused():
                self._copy(self._pool.disk(sandbox_id), folder, read_only=True)
        except BaseException:
            self.drop(disk_id)
            raise

    def drop(self, disk_id: str) -> None:
        """Gone already is success."""
        self._pool.remove_copy(disk_id)

    def prepare(self, disk_id: str, sandbox_id: str, *, limit_mb: int, image: str) -> None:
        """Makes a writable copy beside the sandbox's disk, with its limit and what it is a layer over."""
        place = self._pool.path / f"{BIRTH}{sandbox_id}"
        self.discard(sandbox_id)
        os.mkdir(place, 0o700)
        try:
            with _full_pool_refused():
                self._copy(self.path(disk_id), place, read_only=False)
            self._pool.set_limit(f"{place.name}/disk", limit_mb)
            (place / "disk" / IMAGE_NOTE).write_text(image)
        except BaseException:
            self.discard(sandbox_id)
            raise

    def prepare_empty(self, new_id: str, *, limit_mb: int, image: str) -> None:
        """Does the same as `prepare` for an empty disk."""
        place = self._pool.path / f"{BIRTH}{new_id}"
        self.discard(new_id)
        os.mkdir(place, 0o700)
        disk = place / "disk"
        try:
            with _full_pool_refused():
                if self.are_instant:
                    with opened(place) as fd:
                        btrfs.create_subvolume(fd, "disk")
                else:
                    os.mkdir(disk, 0o700)
            self._pool.set_limit(f"{place.name}/disk", limit_mb)
            for name in ("upper", "work"):
                os.mkdir(disk / name)
                os.chmod(disk / name, 0o755)
            (disk / IMAGE_NOTE).write_text(image)
        except BaseException:
            self.discard(new_id)
            raise

    def copy_to(self, disk_id: str, folder: str) -> None:
        """Makes a writable copy, in a new folder of the pool."""
        place = self._pool.path / folder
        os.mkdir(place, 0o700)
        with _full_pool_refused():
            self._copy(self.path(disk_id), place, read_only=False)

    def prepared(self, new_id: str) -> Path:
        return self._pool.path / f"{BIRTH}{new_id}" / "disk"

    def prepared_number(self, new_id: str) -> int:
        with opened(self.prepared(new_id)) as fd:
            return btrfs.subvolume_id(fd)

    def keep_prepared(self, new_id: str) -> None:
        """Keeps what was prepared under this id, read-only. On any failure nothing is left."""
        self.keep(f"{BIRTH}{new_id}/disk", new_id)

    def place(self, disk_id: str, sandbox_id: str, *, image: str) -> None:
        """Makes the copy the disk of a sandbox that has none yet. For plain folders."""
        self.prepare(disk_id, sandbox_id, limit_mb=0, image=image)
        os.rename(self._pool.path / f"{BIRTH}{sandbox_id}" / "disk", self._pool.disk(sandbox_id))
        self.discard(sandbox_id)

    def swap(self, sandbox_id: str) -> None:
        """Exchanges the prepared copy and the disk in one step; `discard` then removes the old one."""
        with opened(self._pool.path) as fd:
            btrfs.exchange(fd, f"{BIRTH}{sandbox_id}/disk", sandbox_id)

    def discard(self, sandbox_id: str) -> None:
        """Removes what `prepare` made, or what replaced it. Gone already is success."""
        self._pool.remove_copy(f"{BIRTH}{sandbox_id}")

    def look(self, disk_id: str) -> btrfs.Subvolume | None:
        """Returns the state of a kept disk, to notice a change; None where that is not possible."""
        if not self.are_instant:
            return None
        with opened(self.path(disk_id)) as fd:
            return btrfs.look_at(fd)

    def number(self, disk_id: str) -> int:
        with opened(self.path(disk_id)) as fd:
            return btrfs.subvolume_id(fd)

    def measure(self, disk_id: str) -> int:
        """Sums the bytes of all files. Not in Python: a tenant can nest folders deeper than its stack."""
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
        with opened(source) as source_fd, opened(place) as place_fd:
            btrfs.snapshot(source_fd, place_fd, "disk", read_only=read_only)


@contextlib.contextmanager
def _full_pool_refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoCapacity(resource="disk", why="the storage pool is full") from error
        raise


class Spares:
    def __init__(self, pool: Pool, copies: Copies) -> None:
        self._pool = pool
        self._copies = copies
        self._ready: dict[str, list[str]] = {}
        self._changing = threading.Lock()

    def names(self, disk_id: str, count: int) -> list[str]:
        """Returns names of folders, chosen beforehand, so that a caller that is cancelled still knows
        what to discard.
        """
        return [f"{SPARE}{disk_id}-{secrets.token_hex(8)}" for _ in range(count)]

    def make(self, disk_id: str, names: list[str]) -> None:
        """Makes as many as the pool has room for. A sandbox that finds none is copied alone."""
        with ThreadPoolExecutor(min(len(names), _AT_ONCE), thread_name_prefix="spares") as threads:
            made = [name for name in threads.map(lambda name: self._make_one(disk_id, name), names) if name]
        with self._changing:
            self._ready.setdefault(disk_id, []).extend(made)

    def has(self, disk_id: str) -> bool:
        return bool(self._ready.get(disk_id))

    def take(self, disk_id: str, disk: Path) -> bool:
        """Moves a spare copy of this kept disk to `disk`, if there is one; says whether it did."""
        with self._changing:
            ready = self._ready.get(disk_id)
            name = ready.pop() if ready else None
        if name is None:
            return False
        try:
            os.rename(self._pool.path / name / "disk", disk)
        finally:
            # Nobody else knows of it any more: its empty folder, or all of it if it could not be moved.
            self._pool.remove_copy(name)
        return True

    def discard(self, disk_id: str, names: list[str]) -> None:
        """Removes the copies that nobody used."""
        with self._changing:
            ready = self._ready.pop(disk_id, [])
            left = set(names) & set(ready)
            if others := [name for name in ready if name not in left]:
                self._ready[disk_id] = others
        for name in left:
            self._pool.remove_copy(name)

    def _make_one(self, disk_id: str, name: str) -> str | None:
        with suppress(OSError, NoCapacity):
            self._copies.copy_to(disk_id, name)
            return name
        self._pool.remove_copy(name)
        return None


class Counting:
    def __init__(self, pool: Pool, copies: Copies, heritages: HeritageFolder) -> None:
        self._pool = pool
        self._copies = copies
        self._heritages = heritages

    def kept_mb(self) -> int:
        """Returns the space that is left of disks that are gone."""
        return -(-sum(self._pool.charged(owner.number) for owner in self._ownerless()) // MB)

    def left_behind_mb(self, sandbox_id: str) -> int:
        """Returns at most what others would still hold of this disk if it was removed."""
        return -(-self._pool.usage(sandbox_id).used_bytes // MB)

    def inherited(self, sandbox_id: str) -> tuple[Owner, ...]:
        """Returns the owners of a disk's content: its own number, and those of the disks it descends from."""
        if not self._copies.are_instant:
            return ()
        older = self._heritages.known.get(sandbox_id)
        still = () if older is None else (o for o in older.owners if self._pool.charged(o.number))
        return (*still, Owner(self._pool.number(sandbox_id), sandbox_id))

    def at_most(self, owners: tuple[Owner, ...]) -> int:
        return sum(self._pool.charged(owner.number) for owner in owners)

    def alone(self, heritage: Heritage) -> int:
        """Returns what would be freed if this disk was dropped: its own, and what only it holds of disks
        that are gone.
        """
        if not self._copies.are_instant:
            return heritage.bytes or 0
        alone = (o for o in heritage.owners if not self._heritages.is_held_by_others(o, heritage))
        mine = {owner.number for owner in alone if not self._lives(owner)}
        numbers = {self._copies.number(heritage.id), *mine}
        return sum(self._pool.charged(number) for number in numbers)

    def _ownerless(self) -> set[Owner]:
        return {owner for owner in self._heritages.owners() if not self._lives(owner)}

    def _lives(self, owner: Owner) -> bool:
        try:
            return self._pool.number(owner.sandbox_id) == owner.number
        except OSError:
            return False
