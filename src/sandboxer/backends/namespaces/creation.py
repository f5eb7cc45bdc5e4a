"""Makes a sandbox, and starts a stopped one again, each behind an undo stack; gives a running one other
limits.

Other limits are promised first, then written, and undone if the kernel refuses.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.backends.guest import WAY_OUT_PORT, FirstFile
from sandboxer.backends.launch import DiskBirths, Launched, LaunchOrder
from sandboxer.backends.namespaces.box import Box, Stage, new_box
from sandboxer.backends.namespaces.dependencies import BackendDependencies, check_single
from sandboxer.backends.namespaces.kept.disks import Keeping
from sandboxer.backends.namespaces.kept.records import Heritage
from sandboxer.backends.namespaces.kept.renewal import name_server_of
from sandboxer.backends.namespaces.removal import Ending
from sandboxer.backends.namespaces.settings import shm_bytes
from sandboxer.backends.namespaces.uids import WIDTH
from sandboxer.backends.namespaces.volumes import check_attachable
from sandboxer.backends.shared import folders_above, pidfd_of
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    GuestMisbehaved,
    InvalidRequest,
    NotFound,
    ProvisionFailed,
)
from sandboxer.kernel.fairness import note_work
from sandboxer.kernel.tasks import in_thread, to_the_end, together
from sandboxer.kernel.values import is_sandbox_id

_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
Timings = dict[str, float]


class Making:
    def __init__(self, dependencies: BackendDependencies, ending: Ending, keeping: Keeping) -> None:
        self._dependencies = dependencies
        self._ending = ending
        self._keeping = keeping

    async def make(self, order: Order) -> tuple[Box, Timings]:
        order = named(order)
        check_order(order)
        dependencies = self._dependencies
        if order.sandbox_id in dependencies.known:
            raise Conflict(why=f"{order.sandbox_id} exists already")
        heritage = None if order.origin is None else await self._keeping.check(order.origin)
        if heritage is not None:
            await self._keeping.check_room(heritage, order.resources.disk_mb)
        tree = dependencies.image_tree(order.image if heritage is None else heritage.image)
        check_attachable(dependencies, order)
        dependencies.promise(order.resources, disk=True)
        try:
            slot = dependencies.ranges.take()
        except BaseException:
            without = dependencies.promised.with_running(order.resources, -1)
            dependencies.promised = without.with_disk(-order.resources.disk_mb)
            raise
        box = new_box(order, slot, dependencies.boot_id, image=tree)
        # From here on the box is known, and removing it gives back everything it was promised.
        dependencies.known[order.sandbox_id] = box
        births = partial(self._births_now, order, heritage)

        async def undo() -> None:
            await self._ending.remove(order.sandbox_id)

        return await self._start(box, order, str(dependencies.image_path(tree)), births, undo)

    async def resume(self, box: Box, order: Order) -> tuple[Box, Timings]:
        """Starts a sandbox on the disk it has, with the order's limits, which may have changed."""
        order = named(order)
        check_order(order)
        dependencies = self._dependencies
        if not dependencies.pool.has_disk(box.sandbox_id):
            raise NotFound(what="disk of sandbox", id=box.sandbox_id)
        # Its disk is a layer over exactly this one.
        tree = dependencies.pool.image_of(box.sandbox_id) or box.image
        image = dependencies.image_path(tree)
        check_attachable(dependencies, order)
        dependencies.promise(order.resources, disk=False)
        try:
            slot = dependencies.ranges.take()
        except BaseException:
            dependencies.promised = dependencies.promised.with_running(order.resources, -1)
            raise
        dependencies.promised = dependencies.promised.with_disk(order.resources.disk_mb - box.disk_mb)
        starting = replace(new_box(order, slot, dependencies.boot_id, image=tree), stage=Stage.RESUMING)
        dependencies.known[box.sandbox_id] = starting

        def births() -> DiskBirths:
            is_same = order.resources.disk_mb == box.disk_mb
            acts = [] if is_same else dependencies.pool.new_limit(box.sandbox_id, order.resources.disk_mb)
            return acts + (
                name_server_of(dependencies.pool.disk(box.sandbox_id)) if has_way_out(order) else []
            )

        async def undo() -> None:
            await self._ending.stop(box.sandbox_id)

        return await self._start(starting, order, str(image), births, undo)

    async def _start(
        self,
        box: Box,
        order: Order,
        image: str,
        births: Callable[[], DiskBirths],
        undo: Callable[[], Awaitable[None]],
    ) -> tuple[Box, Timings]:
        dependencies = self._dependencies
        began = time.perf_counter()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(lambda: to_the_end(_awaited(undo)))
            disks = await in_thread(dependencies.threads, self._begin_now, box, births)
            launched = await to_the_end(
                dependencies.launcher.launch(self._launch_order(box, order, image, disks))
            )
            note_work(launched.timings_ms.get("processor", 0.0) / 1e3)
            made = time.perf_counter()
            box = replace(box, stage=Stage.RUNNING, pid=launched.pid, started=launched.started)
            dependencies.known[box.sandbox_id] = box
            written = in_thread(dependencies.threads, dependencies.boxes.write, box)
            await together(written, self._first_answer(box))
            answered = time.perf_counter()
            dependencies.deaths.watch(box.sandbox_id, self._pidfd(launched))
            stack.pop_all()
        return box, {
            "launch": (made - began) * 1e3,
            "boot": (answered - made) * 1e3,
            **{f"launch.{name}": value for name, value in launched.timings_ms.items()},
        }

    def _begin_now(self, box: Box, births: Callable[[], DiskBirths]) -> DiskBirths:
        """Writes the record of a sandbox before anything of it is made. Blocks."""
        self._dependencies.boxes.write(box)
        return births()

    def _births_now(self, order: Order, heritage: Heritage | None) -> DiskBirths:
        if heritage is not None:
            return self._keeping.births_now(order, heritage)
        pool = self._dependencies.pool
        births = pool.births(
            order.sandbox_id,
            limit_mb=order.resources.disk_mb,
            hostname=order.hostname,
            has_way_out=has_way_out(order),
        )
        return births + first_files(f"{pool.disk(order.sandbox_id)}/upper", order.files)

    def _launch_order(self, box: Box, order: Order, image: str, disks: DiskBirths) -> LaunchOrder:
        dependencies, settings = self._dependencies, self._dependencies.settings
        if box.slot is None:
            raise ProvisionFailed(step="range", why="no uid range")
        return LaunchOrder(
            tag=box.sandbox_id,
            image=image,
            disk=str(dependencies.pool.disk(box.sandbox_id)),
            socket=str(dependencies.boxes.socket(box.sandbox_id)),
            hostname=box.hostname,
            cgroups=dependencies.cgroups.births(box.sandbox_id, box.resources),
            disks=disks,
            first_uid=dependencies.ranges.first_uid(box.slot),
            uid_count=WIDTH,
            shm_bytes=shm_bytes(box.memory_mb),
            ptys=settings.ptys,
            sigpending=settings.sigpending,
            open_files=settings.open_files,
            masks=dependencies.masked,
            boot_id=str(uuid.uuid4()),
            volumes=tuple(
                (str(dependencies.pool.disk(one.volume_id)), one.path.removeprefix("/"), one.is_read_only)
                for one in order.volumes
            ),
            folders=tuple((one.path.removeprefix("/"), one.is_read_only) for one in order.folders),
            nests=order.nests,
            way_out=WAY_OUT_PORT if has_way_out(order) else None,
            tools=str(dependencies.tools),
            memory_mb=box.memory_mb,
            vcpus=box.vcpus,
            pids=box.pids,
            origin=order.origin if box.stage is Stage.MAKING else None,
        )

    async def _first_answer(self, box: Box) -> None:
        line = SupervisorGuest(self._dependencies.reach.door(box.sandbox_id))
        try:
            async with asyncio.timeout(self._dependencies.settings.boot_timeout_s):
                await line.ping()
        except (BackendLost, GuestMisbehaved, TimeoutError) as error:
            why = str(error) or "the supervisor did not answer in time"
            raise ProvisionFailed(step="boot", why=why) from None

    def _pidfd(self, launched: Launched) -> int:
        if (fd := pidfd_of(launched.pid, launched.started)) is None:
            raise ProvisionFailed(step="boot", why="the sandbox ended at once")
        return fd


def first_files(upper: str, files: Sequence[FirstFile]) -> DiskBirths:
    folders = dict.fromkeys(folder for file in files for folder in folders_above(file.path))
    acts: DiskBirths = [("folder", upper + folder, None) for folder in folders]
    for file in files:
        place = upper + file.path
        if file.source is None:
            acts.append(("create", place, file.text))
            continue
        acts.append(("copy", place, file.source))
        if file.text:
            acts.append(("append", place, file.text))
    return acts


def has_way_out(order: Order) -> bool:
    return order.trust is Trust.SEMI


def named(order: Order) -> Order:
    return order if order.hostname else replace(order, hostname="sbx-" + order.sandbox_id[4:16])


def check_order(order: Order) -> None:
    """Checks the texts of an order, which become paths, arguments and file contents."""
    if not is_sandbox_id(order.sandbox_id):
        raise InvalidRequest(field="sandbox_id", why="not a sandbox id")
    if not _HOSTNAME.fullmatch(order.hostname):
        raise InvalidRequest(field="hostname", why="letters, digits and hyphens, at most 63")
    resources = order.resources
    for name, value, least in (
        ("vcpus", resources.vcpus, 0.01),
        ("memory_mb", resources.memory_mb, 16),
        ("disk_mb", resources.disk_mb, 16),
        ("pids", resources.pids, 4),
    ):
        if value < least:
            raise InvalidRequest(field=f"resources.{name}", why=f"at least {least}")


async def _awaited(act: Callable[[], Awaitable[None]]) -> None:
    await act()


async def resize_box(dependencies: BackendDependencies, box: Box, resources: Resources) -> None:
    if not dependencies.has_processes(box):
        raise BackendLost(why="the sandbox is not running")
    before = box.resources
    if resources == before:
        return
    if resources.disk_mb != before.disk_mb:
        raise InvalidRequest(field="disk_mb", why="a disk keeps its size")
    _promise(dependencies, before, resources)
    try:
        # The record first: whoever reads it after a crash must not promise twice what is already used.
        _note(dependencies, box, resources)
        await in_thread(dependencies.threads, dependencies.cgroups.resize, box.sandbox_id, resources)
    except OSError as error:
        _take_back(dependencies, before, resources)
        _note(dependencies, box, before)
        await in_thread(dependencies.threads, dependencies.cgroups.resize, box.sandbox_id, before)
        raise Conflict(
            why="it uses more memory than it would have",
            reason="memory_in_use",
            hint="Let it use less first, or leave it as it is.",
        ) from error


def _promise(dependencies: BackendDependencies, before: Resources, after: Resources) -> None:
    """Promises resources. Raises NoCapacity; less than before is never refused, however full the host is."""
    wanted = dependencies.promised.with_running(before, -1).with_running(after)
    grows = after.vcpus > before.vcpus or after.memory_mb > before.memory_mb or after.pids > before.pids
    if grows:
        check_single(dependencies.host, after)
        dependencies.check_fits(wanted)
    dependencies.promised = wanted


def _take_back(dependencies: BackendDependencies, before: Resources, after: Resources) -> None:
    dependencies.promised = dependencies.promised.with_running(after, -1).with_running(before)


def _note(dependencies: BackendDependencies, box: Box, resources: Resources) -> None:
    changed = replace(
        dependencies.known[box.sandbox_id],
        vcpus=resources.vcpus,
        memory_mb=resources.memory_mb,
        pids=resources.pids,
    )
    dependencies.known[box.sandbox_id] = changed
    dependencies.boxes.write(changed)
