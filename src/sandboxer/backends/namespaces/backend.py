"""`ext.namespaces`: sandboxes on this very host, walled by namespaces, one uid range each, capabilities, a
system call filter, cgroups and disk quotas. This module only connects the parts; `creation.py` and
`removal.py` do the work.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from sandboxer.backends.contract import (
    Capacity,
    Fingerprint,
    Handle,
    KeptDisk,
    KeptLayers,
    KeptSizes,
    Observation,
    Order,
    Presence,
    Resources,
    Usage,
    VolumeUsage,
)
from sandboxer.backends.guest import FolderMount, Guest
from sandboxer.backends.launch import Means
from sandboxer.backends.namespaces.box import Box, BoxFolder, DeathWatch, Stage, boot_id
from sandboxer.backends.namespaces.cgroups import Cgroups, favour_moves, find_hierarchies
from sandboxer.backends.namespaces.creation import Making, resize_box
from sandboxer.backends.namespaces.dependencies import BackendDependencies, lock_state, maskable, measure_host
from sandboxer.backends.namespaces.fingerprint import examine
from sandboxer.backends.namespaces.growth import Growth
from sandboxer.backends.namespaces.guest import OwnReach, SandboxLimits, answers
from sandboxer.backends.namespaces.holdings import Holdings, Precedence, parts_of
from sandboxer.backends.namespaces.kept.copies import Copies, Counting
from sandboxer.backends.namespaces.kept.disks import Keeping, Shaping
from sandboxer.backends.namespaces.kept.records import HeritageFolder
from sandboxer.backends.namespaces.kernel_objects import ObjectWatch
from sandboxer.backends.namespaces.launcher import Launcher, watch_launcher
from sandboxer.backends.namespaces.pool import MB, open_pool
from sandboxer.backends.namespaces.removal import Ending
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.namespaces.tools import tools_tree
from sandboxer.backends.namespaces.uids import UidClaims, UidRanges
from sandboxer.backends.namespaces.volumes import VolumeKeeping
from sandboxer.backends.reports import CleanupReport, CostsNothing
from sandboxer.backends.shared import can_lie_over, check_folder_paths, pidfd_of, threads_of
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import BackendLost, Broken, NotFound, Unavailable, or_not_found
from sandboxer.kernel.tasks import in_thread, own_tasks, to_the_end
from sandboxer.kernel.values import is_sandbox_id

log = logging.getLogger(__name__)
NAME = "ext.namespaces"
HANDLE_VERSION = 1
FREEZE_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 3.0
HEARTBEAT_S = 5.0
THREADS = 16


class NamespacesBackend(CostsNothing):
    """Connects the parts. Another means of starting sandboxes may derive from it to offer more."""

    def __init__(self, dependencies: BackendDependencies) -> None:
        self.dependencies = dependencies
        # Read before this server leaves its own: what the last one left is the sign of life that counts.
        self._last_beat = _last_beat(dependencies)
        self._ending = Ending(dependencies)
        self._keeping = Keeping(dependencies, self._ending)
        self._shaping = Shaping(dependencies, self._keeping)
        self._volumes = VolumeKeeping(dependencies, self._keeping)
        self._making = Making(dependencies, self._ending, self._keeping)
        self._holdings = Holdings(dependencies)
        self._precedence = Precedence(dependencies)
        self._guests: dict[str, Guest] = {}

    @property
    def name(self) -> str:
        return self.dependencies.name

    async def fingerprint(self) -> Fingerprint:
        found = await asyncio.to_thread(examine, self.dependencies.settings, self.dependencies.pool)
        return self.dependencies.adjust(found)

    def check_image(self, image: str) -> None:
        self.dependencies.image_tree(image)

    def can_begin_with(self, image: str, paths: Sequence[str]) -> bool:
        tree = self.dependencies.image_tree(image)
        return can_lie_over(self.dependencies.image_path(tree), paths)

    def check_folders(self, folders: Sequence[FolderMount]) -> None:
        check_folder_paths(folders)

    def parts(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return parts_of(self.dependencies)

    async def lies_over(self) -> Mapping[str, str]:
        return await in_thread(self.dependencies.threads, self.dependencies.lies_over)

    async def check_host(self) -> None:
        await in_thread(self.dependencies.threads, self._holdings.check_host)

    async def capacity(self) -> Capacity:
        return await in_thread(self.dependencies.threads, self.dependencies.capacity)

    async def provision(self, order: Order) -> Handle:
        async with self.dependencies.one_at_a_time(order.sandbox_id):
            box, timings = await self._making.make(order)
        return _handle(self.name, box, timings)

    async def recover(self, handle: Handle) -> Observation:
        async with self.dependencies.one_at_a_time(handle.sandbox_id):
            return await self._observe(handle.sandbox_id)

    async def inventory(self) -> Sequence[str]:
        dependencies = self.dependencies
        found = await in_thread(
            dependencies.threads,
            lambda: {*dependencies.boxes.ids(), *dependencies.pool.ids(), *dependencies.cgroups.ids()},
        )
        return sorted(found | set(dependencies.known))

    async def mark(self) -> str | None:
        return await in_thread(self.dependencies.threads, self._holdings.mark)

    async def set_mark(self, text: str) -> None:
        await in_thread(self.dependencies.threads, self._holdings.set_mark, text)

    async def disks(self) -> Sequence[str]:
        return await in_thread(self.dependencies.threads, self._holdings.disks)

    async def spares(self) -> Sequence[str]:
        return [box.sandbox_id for box in self.dependencies.known.values() if box.is_spare]

    async def give_away(self, sandbox_id: str) -> None:
        async with self.dependencies.one_at_a_time(sandbox_id):
            await in_thread(self.dependencies.threads, self._holdings.give_away, sandbox_id)

    async def processor_s_of_all(self) -> float:
        return await in_thread(self.dependencies.threads, self._precedence.of_all)

    async def processor_s(self) -> Mapping[str, float]:
        return await in_thread(self.dependencies.threads, self._precedence.of_each)

    async def give_way(self, sandbox_ids: Collection[str]) -> None:
        await in_thread(self.dependencies.threads, self._precedence.give_way, sandbox_ids)

    async def strays(self) -> Mapping[str, str]:
        return await in_thread(self.dependencies.threads, self._holdings.strays)

    async def end_stray(self, stray_id: str) -> None:
        await in_thread(self.dependencies.threads, self._holdings.end_stray, stray_id)

    async def guest(self, handle: Handle) -> Guest:
        sandbox_id = handle.sandbox_id
        box = self.dependencies.known.get(sandbox_id)
        if box is None or not self.dependencies.has_processes(box):
            raise BackendLost(why="the sandbox is not running")
        return self._guest(sandbox_id)

    async def usage(self, handle: Handle) -> Usage:
        box = self._box(handle.sandbox_id)
        counted = self.dependencies.cgroups.counted(box.sandbox_id)
        disk = await in_thread(self.dependencies.threads, self.dependencies.pool.usage, box.sandbox_id)
        return Usage(
            cpu_s=counted.cpu_s,
            memory_bytes=counted.memory_bytes,
            memory_limit_bytes=box.memory_mb * MB,
            disk_bytes=disk.used_bytes,
            disk_limit_bytes=box.disk_mb * MB,
            # A thread of the supervisor answers programs that ask for their limits, once one has.
            processes=max(counted.processes - max(threads_of(box.pid) - 1, 0), 0),
            processes_limit=box.pids,
        )

    async def teardown(self, sandbox_id: str) -> None:
        await self.teardown_with_report(sandbox_id)

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        if not is_sandbox_id(sandbox_id):
            raise NotFound(what="sandbox", id=sandbox_id)
        async with self.dependencies.one_at_a_time(sandbox_id):
            self._guests.pop(sandbox_id, None)
            return await to_the_end(self._ending.remove(sandbox_id))

    def deaths(self) -> AsyncIterator[str]:
        return self.dependencies.deaths.ended()

    async def stop(self, handle: Handle) -> None:
        box = self._box(handle.sandbox_id)
        async with self.dependencies.one_at_a_time(box.sandbox_id):
            if self._box(box.sandbox_id).stage is not Stage.STOPPED:
                await self._stop(box.sandbox_id)

    async def resume(self, handle: Handle, order: Order) -> Handle:
        sandbox_id = handle.sandbox_id
        async with self.dependencies.one_at_a_time(sandbox_id):
            box = self._box(sandbox_id)
            if box.stage is Stage.RUNNING and self.dependencies.has_processes(box):
                return _handle(self.name, box, {})
            if box.stage is not Stage.STOPPED:
                await self._stop(sandbox_id)
            box, timings = await self._making.resume(self._box(sandbox_id), order)
        return _handle(self.name, box, timings)

    async def freeze(self, handle: Handle) -> None:
        await self._set_frozen(handle.sandbox_id, True)

    async def thaw(self, handle: Handle) -> None:
        await self._set_frozen(handle.sandbox_id, False)

    async def take(self, handle: Handle, disk_id: str) -> KeptDisk:
        async with self.dependencies.one_at_a_time(handle.sandbox_id):
            return await to_the_end(self._keeping.take(self._box(handle.sandbox_id), disk_id))

    async def restore(self, handle: Handle, order: Order, disk_id: str, *, start: bool) -> Handle:
        sandbox_id = handle.sandbox_id
        async with self.dependencies.one_at_a_time(sandbox_id):
            box = await to_the_end(self._replace_disk(sandbox_id, disk_id))
            if not start:
                return _handle(self.name, box, {})
            box, timings = await self._start_restored(box, order, disk_id)
        return _handle(self.name, box, timings)

    async def _start_restored(self, box: Box, order: Order, disk_id: str) -> tuple[Box, dict[str, float]]:
        """Starts what was just restored to this kept disk."""
        return await self._making.resume(box, order)

    async def drop(self, disk_id: str) -> None:
        await to_the_end(self._keeping.drop(disk_id))

    async def check_kept(self, disk_id: str) -> None:
        await self._keeping.check(disk_id)

    def copies_ahead(self, disk_id: str, count: int) -> AbstractAsyncContextManager[None]:
        return self._keeping.ahead(disk_id, count)

    async def sizes(self, disk_id: str) -> KeptSizes:
        return await self._keeping.sizes(disk_id)

    async def kept(self) -> Sequence[str]:
        return await self._keeping.kept()

    async def layers(self, disk_id: str, *, suspected: bool = False) -> KeptLayers:
        return await self._shaping.layers(disk_id, suspected=suspected)

    async def copy_kept(self, disk_id: str, new_id: str, change: Callable[[int], None] | None) -> KeptDisk:
        return await to_the_end(self._shaping.copy(disk_id, new_id, change))

    async def fill_kept(self, new_id: str, fill: Callable[[int], None], *, limit_mb: int) -> KeptDisk:
        return await to_the_end(self._shaping.fill(new_id, fill, limit_mb=limit_mb))

    async def make_volume(self, volume_id: str, *, size_mb: int, origin: str | None = None) -> None:
        await to_the_end(self._volumes.make(volume_id, size_mb=size_mb, origin=origin))

    async def resize_volume(self, volume_id: str, *, size_mb: int) -> None:
        await to_the_end(self._volumes.resize(volume_id, size_mb=size_mb))

    async def take_volume(self, volume_id: str, disk_id: str) -> KeptDisk:
        return await to_the_end(self._volumes.take(volume_id, disk_id))

    async def restore_volume(self, volume_id: str, disk_id: str) -> None:
        await to_the_end(self._volumes.restore(volume_id, disk_id))

    async def drop_volume(self, volume_id: str) -> None:
        await to_the_end(self._volumes.drop(volume_id))

    async def volume_usage(self, volume_id: str) -> VolumeUsage:
        return await self._volumes.usage(volume_id)

    async def volumes(self) -> Sequence[str]:
        return await self._volumes.all()

    async def resize(self, handle: Handle, resources: Resources) -> None:
        async with self.dependencies.one_at_a_time(handle.sandbox_id):
            await to_the_end(resize_box(self.dependencies, self._box(handle.sandbox_id), resources))

    async def close(self) -> None:
        # Nobody decides it any more.
        await self.give_way(())
        self.dependencies.deaths.close()
        await self.dependencies.launcher.close()

    async def beat(self) -> None:
        """Writes the time to a file, so that after a reboot it is known when the server last ran."""
        while True:
            try:
                _touch(self.dependencies)
            except OSError as error:
                # It must go on: the disk may take writes again.
                log.error("the heartbeat cannot be written: %s", error)
            await asyncio.sleep(HEARTBEAT_S)

    async def _set_frozen(self, sandbox_id: str, frozen: bool) -> None:
        box = self._box(sandbox_id)
        if not self.dependencies.has_processes(box):
            raise BackendLost(why="the sandbox is not running")
        reach = self.dependencies.reach
        try:
            done = await in_thread(
                self.dependencies.threads, reach.set_frozen, sandbox_id, frozen, FREEZE_TIMEOUT_S
            )
        except FileNotFoundError:
            raise BackendLost(why="the sandbox is not running") from None
        if not done:
            raise Unavailable(why=f"its processes did not stop within {FREEZE_TIMEOUT_S:g} s")

    async def _stop(self, sandbox_id: str) -> None:
        self._guests.pop(sandbox_id, None)
        await to_the_end(self._ending.stop(sandbox_id))

    async def _replace_disk(self, sandbox_id: str, disk_id: str) -> Box:
        box = self._box(sandbox_id)
        if box.holds_processes and not self.dependencies.has_processes(box):
            # The host was started anew, and nobody has asked for it since.
            await self._stop(sandbox_id)
        self._guests.pop(sandbox_id, None)
        return await self._keeping.replace_disk(self._box(sandbox_id), disk_id)

    def _box(self, sandbox_id: str) -> Box:
        return or_not_found(self.dependencies.known.get(sandbox_id), what="sandbox", id=sandbox_id)

    def _guest(self, sandbox_id: str) -> Guest:
        if (guest := self._guests.get(sandbox_id)) is None:
            guest = self._guests[sandbox_id] = self.dependencies.reach.guest(sandbox_id)
        return guest

    async def _observe(self, sandbox_id: str) -> Observation:
        dependencies = self.dependencies
        box = dependencies.known.get(sandbox_id)
        has_disk = box is not None and dependencies.pool.has_disk(sandbox_id)
        if box is not None and not has_disk and not dependencies.pool.is_there:
            # Whoever took the absence of all disks for the loss of this one would remove its record.
            raise Unavailable(why="the storage pool is not mounted", reason="pool_gone")
        if box is None or box.stage is Stage.MAKING or not has_disk:
            return Observation(presence=Presence.GONE, reason="never_made" if box else None)
        if box.stage is Stage.STOPPED:
            return Observation(presence=Presence.STOPPED)
        if box.boot_id != dependencies.boot_id:
            await self._stop(sandbox_id)
            return Observation(
                presence=Presence.STOPPED, reason="host_rebooted", last_seen_alive=self._last_beat
            )
        return await self._observe_running(box)

    async def _observe_running(self, box: Box) -> Observation:
        dependencies = self.dependencies
        pidfd = pidfd_of(box.pid, box.started) if box.stage is Stage.RUNNING else None
        killed = dependencies.cgroups.counters(box.sandbox_id).oom_kills > 0
        if pidfd is None:
            return await self._stopped(box, "oom_killed" if killed else "exited")
        frozen = dependencies.reach.is_frozen(box.sandbox_id)
        if not (frozen and not dependencies.reach.answers_frozen) and not await self._answers(box.sandbox_id):
            os.close(pidfd)
            # What is its kernel ends in parts: whoever was killed, the rest follows.
            is_ending = killed and not dependencies.cgroups.sees_commands
            return await self._stopped(box, "oom_killed" if is_ending else "not_answering")
        if dependencies.deaths.watches(box.sandbox_id):
            os.close(pidfd)
        else:
            dependencies.deaths.watch(box.sandbox_id, pidfd)
        return Observation(presence=Presence.FROZEN if frozen else Presence.RUNNING)

    async def _answers(self, sandbox_id: str) -> bool:
        return await answers(SupervisorGuest(self.dependencies.reach.door(sandbox_id)), ANSWER_TIMEOUT_S)

    async def _stopped(self, box: Box, seen: str) -> Observation:
        """Stops what is left of one that does not run. It says what we ended it for, or what is seen."""
        reason = self.dependencies.ended_for.pop(box.sandbox_id, seen)
        await self._stop(box.sandbox_id)
        return Observation(presence=Presence.STOPPED, reason=reason)


@asynccontextmanager
async def open_backend(
    settings: NamespacesSettings,
    *,
    choose: Callable[[tuple[int, ...]], Means] | None = None,
    connect: Callable[[BackendDependencies], NamespacesBackend] = NamespacesBackend,
) -> AsyncIterator[NamespacesBackend]:
    """Opens the backend of one state folder. On leaving, its sandboxes keep running.

    `choose`: brings other means of starting sandboxes. It is given locks that whatever starts one holds too,
    as long as it may still be making something. `connect`: connects the parts to a backend that offers more.
    """
    async with AsyncExitStack() as stack:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = await asyncio.to_thread(lock_state, settings.run_dir)
        stack.callback(os.close, lock_fd)
        threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="walls")
        stack.callback(threads.shutdown)
        unmounts = ThreadPoolExecutor(max_workers=1, thread_name_prefix="unmounts")
        pool = await in_thread(threads, open_pool, settings)
        await in_thread(threads, pool.sweep)
        copies, heritages = Copies(pool), HeritageFolder(settings.kept_dir)
        stack.callback(pool.close)
        stack.callback(unmounts.shutdown)
        boxes = BoxFolder(settings.run_dir)
        stack.callback(boxes.close)
        claims = await in_thread(threads, _open_claims, settings)
        stack.callback(claims.close)
        means = choose((lock_fd, claims.fd)) if choose else _own_means(settings, lock_fd, claims.fd)
        cgroups = await in_thread(threads, _open_cgroups, settings, means)
        stack.callback(cgroups.remove_parents)
        limits = partial(SandboxLimits, cgroups, pool)
        dependencies = BackendDependencies(
            settings=settings,
            boot_id=boot_id(),
            host=measure_host(pool, settings),
            pool=pool,
            cgroups=cgroups,
            boxes=boxes,
            ranges=UidRanges(settings.uid_base, settings.uid_ranges, claims),
            name=means.name,
            adjust=means.adjust,
            launcher=means.starter,
            reach=means.reach(limits)
            if means.reach
            else OwnReach(boxes, cgroups, limits, streams=settings.streams),
            deaths=DeathWatch(),
            threads=threads,
            unmounts=unmounts,
            copies=copies,
            heritages=heritages,
            counting=Counting(pool, copies, heritages),
            tools=await in_thread(threads, tools_tree, settings),
            masked=maskable(),
        )
        dependencies.remember_all()
        growth = Growth(dependencies)
        await in_thread(threads, growth.begin)
        backend = connect(dependencies)
        stack.push_async_callback(backend.close)
        await means.starter.start()
        async with own_tasks() as loops:
            loops.start(backend.beat(), name="heartbeat")
            loops.start(growth.watch(), name="growth of the storage pool")
            loops.start(watch_launcher(means.starter), name="whether the launcher answers")
            loops.start(ObjectWatch(dependencies).watch(), name="kernel objects of sandboxes")
            yield backend


def _open_cgroups(settings: NamespacesSettings, means: Means) -> Cgroups:
    hierarchies = find_hierarchies(settings.state_dir / "cgroup2")
    favour_moves(hierarchies.unified)
    cgroups = Cgroups(hierarchies, settings.cgroup_parent, host_tasks=means.host_tasks)
    try:
        cgroups.prepare()
    except OSError as error:
        raise Broken(why=f"cgroups cannot be made: {error}") from error
    return cgroups


def _open_claims(settings: NamespacesSettings) -> UidClaims:
    try:
        return UidClaims(settings.claims_dir)
    except OSError as error:
        raise Broken(why=f"uids cannot be claimed in {settings.claims_dir}: {error.strerror}") from error


def _own_means(settings: NamespacesSettings, lock_fd: int, claims_fd: int) -> Means:
    program, supervisor = settings.guest_dir / "launcher", settings.guest_dir / "supervisor"
    return Means(
        NAME, Launcher(program=program, supervisor=supervisor, lock_fd=lock_fd, held_fds=(claims_fd,))
    )


def _handle(name: str, box: Box, timings: dict[str, float]) -> Handle:
    data = {
        "pid": box.pid,
        "started": box.started,
        "boot_id": box.boot_id,
        "walls": box.walls,
        "timings_ms": {name: round(value, 3) for name, value in timings.items()},
    }
    return Handle(sandbox_id=box.sandbox_id, backend=name, version=HANDLE_VERSION, data=data)


def _touch(dependencies: BackendDependencies) -> None:
    (dependencies.settings.run_dir / "alive").touch()


def _last_beat(dependencies: BackendDependencies) -> datetime | None:
    try:
        return datetime.fromtimestamp((dependencies.settings.run_dir / "alive").stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
