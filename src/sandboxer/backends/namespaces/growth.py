"""Lets the pool's loop file follow what it holds: it grows in allocated steps ahead of use, and gives back in
the background what nobody has needed for a while.

A step is allocated, then the loop device and the file system learn of it; a crash in between leaves a file
that is larger than its file system, which the next step mends. Space goes back the other way round: the file
system first, then the file. The file is never sparse and nothing is discarded from it: otherwise a host whose
disk fills up would turn every tenant's disk read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.namespaces.dependencies import (
    DISK_REFUSES,
    DISK_WARNS,
    BackendDependencies,
    Host,
    usable_mb,
)
from sandboxer.backends.namespaces.metadata import MetadataGuard
from sandboxer.backends.namespaces.pool import MB, Pool, PoolKind, tight_mb
from sandboxer.kernel.tasks import in_thread
from sandboxer.kernel.values import value_class

log = logging.getLogger(__name__)
STEP_MB, LEAST_STEP_MB = 1024, 64
# Kept free ahead of writers, if that much is promised to anybody.
AHEAD_MB = 2048
# For the file system itself, and for whoever is promised a little.
LEAST_AHEAD_MB = 256
# Of the pool, neither data's nor metadata's yet.
LEAST_UNALLOCATED_MB = 256
# Given back when so much, and half of the pool, has not been needed for so long.
SLACK_MB = 4096
SLACK_FOR_S = 600.0
# Between two looks: soon where little is left, rarely where much is.
SOON_S, RARELY_S = 0.1, 1.0
# So many in the time in which the quickest writer could take all that is left.
LOOKS, QUICKEST_MB_S = 4, 1024
AFTER_FAILURE_S = 10.0
_LOOP_SET_CAPACITY = 0x4C07


@value_class
class Room:
    """Describes a pool at one moment, in megabytes."""

    size: int
    # Written, promised to writers by the file system, or held by its own metadata.
    used: int
    # What it may grow to now.
    most: int
    # Neither data's nor metadata's yet.
    unallocated: int
    # Data's, and empty: data takes whole chunks, and keeps each as long as anything is in it.
    idle: int
    # What disks may still take of it.
    unused_promises: int
    # What metadata can still have, of its own or of what is nobody's yet.
    for_metadata: int

    @property
    def can_grow(self) -> bool:
        """Says whether it may grow by what is worth it: a host's free space goes up and down a little."""
        return self.most - self.size >= LEAST_STEP_MB

    @property
    def ahead(self) -> int:
        return min(AHEAD_MB, self.unused_promises + LEAST_AHEAD_MB)

    @property
    def is_tight(self) -> bool:
        """Says whether what is left must be left to metadata: nobody begins anything more."""
        return self._has_less_than(1)

    @property
    def is_out(self) -> bool:
        """Says whether who takes more all the same is to be ended."""
        return self._has_less_than(2)

    def _has_less_than(self, part: int) -> bool:
        return not self.can_grow and self.for_metadata < tight_mb(self.size) // part


def larger(room: Room) -> int | None:
    """Returns the size that the pool should grow to; None if it is large enough or cannot grow.

    Data takes whole chunks, ahead of need: it may have all that is not allocated long before it is full. So
    some is always left unallocated, for metadata that needs more.
    """
    is_short = room.size - room.used < room.ahead or room.unallocated < LEAST_UNALLOCATED_MB
    if not is_short or not room.can_grow:
        return None
    wanted = -(-(room.used + room.ahead) // STEP_MB) * STEP_MB
    return min(room.most, max(wanted, room.size + STEP_MB // 4))


def least(room: Room) -> int:
    """Returns the size that has what is used and what writers may need soon."""
    return -(-(room.used + AHEAD_MB) // STEP_MB) * STEP_MB


def smaller(room: Room) -> int | None:
    """Returns the size that the pool could shrink to; None if it has no more than it may need soon."""
    slack = room.size - least(room)
    return least(room) if slack >= max(SLACK_MB, room.size // 2) else None


def is_scattered(room: Room) -> bool:
    """Says whether a pool that cannot grow has nothing left for metadata, while data has more than it
    holds: a tenant who leaves a little in each chunk would keep everybody from making files.
    """
    return not room.can_grow and room.unallocated < LEAST_UNALLOCATED_MB <= room.idle


def rest_s(room: Room) -> float:
    """Returns how long until the next look at the pool."""
    if not room.can_grow:
        # Metadata may take in a second what is left of it, and then nothing can be moved for it any more.
        is_short = room.unallocated < LEAST_UNALLOCATED_MB or room.for_metadata < 4 * tight_mb(room.size)
        return SOON_S if is_short else RARELY_S
    if room.unallocated < 2 * LEAST_UNALLOCATED_MB:
        return SOON_S
    left = room.size - room.used
    return max(SOON_S, min(RARELY_S, left / QUICKEST_MB_S / LOOKS)) if left < 2 * room.ahead else RARELY_S


def is_urgent(room: Room, due_s: float) -> bool:
    """Says whether a promise brings the next look forward: the pool should grow for it, or be looked at
    sooner than after `due_s`.
    """
    return larger(room) is not None or rest_s(room) < due_s


class Growth:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies
        self._slack_since: float | None = None
        # The size that it shrinks to, a step at a time.
        self._target: int | None = None
        self._gather_at = 0.0
        self._is_warned = False
        self._limit_mb: int | None = None
        self._guard = MetadataGuard(dependencies)

    def begin(self) -> None:
        """Looks for the first time, before anybody writes. Blocks."""
        if self._dependencies.pool.kind is PoolKind.LOOP:
            self.look(time.monotonic())

    async def watch(self) -> None:
        """Looks at the pool and grows or shrinks it, for ever; and at what is left for metadata meanwhile,
        since moving data takes its time.
        """
        if self._dependencies.pool.kind is not PoolKind.LOOP:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(self.look, self._rest))
            group.create_task(self._watch(self.guard, lambda room: asyncio.sleep(rest_s(room))))

    async def _watch(
        self, look: Callable[[float], Room], rest: Callable[[Room], Coroutine[None, None, None]]
    ) -> None:
        while True:
            try:
                room = await in_thread(self._dependencies.threads, look, time.monotonic())
            except OSError as error:
                # Health says so too. What was promised stays promised.
                log.error("the storage pool could not grow or shrink: %s", error)
                await asyncio.sleep(AFTER_FAILURE_S)
            else:
                await rest(room)

    async def _rest(self, room: Room) -> None:
        """Waits until the next look is due, or what is promised meanwhile makes it urgent: a look beside each
        create would slow it down.
        """
        promised, due_s = self._dependencies.promised_disk, rest_s(room)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(due_s):
                while True:
                    await promised.wait()
                    promised.clear()
                    room = replace(room, unused_promises=self._unused_promises(room.used))
                    if is_urgent(room, due_s):
                        return

    def look(self, now: float) -> Room:
        """Looks once, and grows or shrinks the pool by what that shows. Raises OSError. Blocks."""
        pool = self._dependencies.pool
        room = self._room()
        if (size := larger(room)) is not None:
            self._target = None
            resize(pool, self._dependencies.settings.pool_file, size)
            log.info(
                "the storage pool grew from %d to %d MB, of which %d are used", room.size, size, room.used
            )
            room = self._room()
        elif is_scattered(room) and now >= self._gather_at:
            if not pool.gather_data():
                self._gather_at = now + AFTER_FAILURE_S
            room = self._room()
        elif (size := self._next_smaller(room, now)) is not None:
            self._shrink(room, size)
            room = self._room()
        self._settle(room)
        return room

    def guard(self, _now: float) -> Room:
        """Ends who takes what metadata needs. Raises OSError. Blocks."""
        room = self._room()
        self._guard.look(is_tight=room.is_tight, is_out=room.is_out)
        if room.is_tight:
            self._settle(room)
        return room

    def _settle(self, room: Room) -> None:
        """Lets everybody know what the pool has, and the kernel what disks may have of it."""
        host = replace(
            self._dependencies.host,
            disk_mb=usable_mb(room.most, self._dependencies.settings.pool_headroom_mb),
            disk_used_mb=room.used,
            is_disk_tight=room.is_tight,
        )
        self._limit(host.disk_mb)
        self._dependencies.host = host
        self._warn(host)

    def _limit(self, limit_mb: int) -> None:
        """Limits all disks together, where that has changed by what is worth it."""
        # A pool too small for any disk is promised to nobody; a limit of nothing would stop our own notes.
        if not limit_mb or not self._dependencies.pool.limits_all:
            return
        if self._limit_mb is None or abs(limit_mb - self._limit_mb) >= LEAST_STEP_MB:
            self._dependencies.pool.limit_all(limit_mb, is_first=self._limit_mb is None)
            self._limit_mb = limit_mb

    def _warn(self, host: Host) -> None:
        """Warns the operator once each time the pool has become nearly full."""
        was_warned, self._is_warned = self._is_warned, host.disk_used_mb > host.disk_mb * DISK_WARNS
        if self._is_warned and not was_warned:
            log.warning(
                "the storage pool is nearly full: %d of the %d MB that it may have are used; from %d MB on"
                " nothing new is promised",
                host.disk_used_mb,
                host.disk_mb,
                int(host.disk_mb * DISK_REFUSES),
            )

    def _next_smaller(self, room: Room, now: float) -> int | None:
        """Returns the next size on the way down. Step by step: as long as one takes, the pool cannot grow,
        and writers have only what is left then.
        """
        if self._target is None:
            self._target = self._overdue(room, now)
        if self._target is not None and max(self._target, least(room)) >= room.size:
            self._target = None
        return None if self._target is None else max(self._target, least(room), room.size - STEP_MB)

    def _overdue(self, room: Room, now: float) -> int | None:
        if (size := smaller(room)) is None:
            self._slack_since = None
        elif self._slack_since is None:
            self._slack_since = now
        elif now - self._slack_since >= SLACK_FOR_S:
            self._slack_since = None
            return size
        return None

    def _shrink(self, room: Room, size: int) -> None:
        try:
            resize(self._dependencies.pool, self._dependencies.settings.pool_file, size)
        except OSError:
            # Somebody writes, or the file system is at something else: later, from the beginning.
            self._target = None
            raise
        log.info("the storage pool shrank from %d to %d MB", room.size, size)

    def _room(self) -> Room:
        dependencies, pool = self._dependencies, self._dependencies.pool
        if not pool.is_there:
            # What lies below would be taken for a large and empty pool.
            raise FileNotFoundError(errno.ENOENT, "the storage pool is not mounted", str(pool.path))
        space = pool.space()
        return Room(
            size=space.size,
            used=space.used,
            unallocated=space.unallocated,
            idle=space.idle_data,
            most=pool.most_mb(dependencies.settings.pool_size_mb),
            unused_promises=self._unused_promises(space.used),
            for_metadata=space.for_metadata,
        )

    def _unused_promises(self, used_mb: int) -> int:
        promised = self._dependencies.promised
        return max(0, promised.disk_mb + promised.kept_mb - used_mb)


def resize(pool: Pool, file: Path, size_mb: int) -> None:
    """Changes the size of the pool, its loop device and its file. Raises OSError. Blocks: a smaller pool
    first moves what lies beyond its new end.
    """
    device = os.open(pool.device(), os.O_RDWR | os.O_CLOEXEC)
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        if (size := size_mb * MB) < pool.size_mb * MB:
            pool.resize(str(size))
            if pool.size_mb * MB > size:
                raise OSError(errno.EBUSY, "the file system did not shrink")
            os.ftruncate(fd, size)
            fcntl.ioctl(device, _LOOP_SET_CAPACITY)
            return
        before = os.fstat(fd).st_size
        try:
            # Only what is new: where the disk below cannot allocate, the C library writes into each block.
            if size > before:
                os.posix_fallocate(fd, before, size - before)
        except OSError:
            # Half of a step would keep the host's disk full.
            os.ftruncate(fd, before)
            raise
        fcntl.ioctl(device, _LOOP_SET_CAPACITY)
        pool.resize("max")
        pool.widen_metadata()
    finally:
        os.close(fd)
        os.close(device)
