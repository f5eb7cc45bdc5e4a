"""Making a sandbox, and starting a stopped one again, each behind an undo stack."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from sandboxer.backends.contract import Order
from sandboxer.backends.namespaces.box import Box, Stage, new_box
from sandboxer.backends.namespaces.ending import Ending
from sandboxer.backends.namespaces.ground import Ground
from sandboxer.backends.namespaces.kept.keeping import Keeping
from sandboxer.backends.namespaces.kept.records import Heritage
from sandboxer.backends.namespaces.launcher import Launched, LaunchOrder
from sandboxer.backends.namespaces.pool import DiskBirths
from sandboxer.backends.namespaces.recovery import pidfd_of
from sandboxer.backends.namespaces.settled import in_thread, to_the_end
from sandboxer.backends.namespaces.uids import WIDTH
from sandboxer.backends.namespaces.volumes import check_attachable
from sandboxer.backends.namespaces.walls import shm_bytes
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    GuestMisbehaved,
    InvalidRequest,
    NotFound,
    ProvisionFailed,
)
from sandboxer.kernel.ids import is_sandbox_id

_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")

Timings = dict[str, float]


class Making:
    def __init__(self, ground: Ground, ending: Ending, keeping: Keeping) -> None:
        self._ground = ground
        self._ending = ending
        self._keeping = keeping

    async def make(self, order: Order) -> tuple[Box, Timings]:
        order = named(order)
        check_order(order)
        ground = self._ground
        if order.sandbox_id in ground.known:
            raise Conflict(why=f"{order.sandbox_id} exists already")
        heritage = None if order.origin is None else await self._keeping.check(order.origin)
        tree = ground.image_tree(order.image if heritage is None else heritage.image)
        check_attachable(ground, order)
        ground.promise(order.resources, disk=True)
        try:
            slot = ground.ranges.take()
        except BaseException:
            ground.promised = ground.promised.with_running(order.resources, -1).with_disk(order.resources, -1)
            raise
        box = new_box(order, slot, ground.boot_id, image=tree)
        # From here on the box is known, and removing it gives back everything it was promised.
        ground.known[order.sandbox_id] = box
        births = partial(self._births_now, order, heritage)

        async def undo() -> None:
            await self._ending.remove(order.sandbox_id)

        return await self._start(box, order, str(ground.image_path(tree)), births, undo)

    async def resume(self, box: Box, order: Order) -> tuple[Box, Timings]:
        """On the disk it has; with the order's limits, which may have changed."""
        order = named(order)
        check_order(order)
        ground = self._ground
        if not ground.pool.has_disk(box.sandbox_id):
            raise NotFound(what="disk of sandbox", id=box.sandbox_id)
        # Its disk is a layer over exactly this one.
        tree = ground.pool.image_of(box.sandbox_id) or box.image
        image = ground.image_path(tree)
        check_attachable(ground, order)
        ground.promise(order.resources, disk=False)
        try:
            slot = ground.ranges.take()
        except BaseException:
            ground.promised = ground.promised.with_running(order.resources, -1)
            raise
        ground.promised = ground.promised.with_disk(box.resources, -1).with_disk(order.resources)
        starting = replace(new_box(order, slot, ground.boot_id, image=tree), stage=Stage.RESUMING)
        ground.known[box.sandbox_id] = starting

        def births() -> DiskBirths:
            is_same = order.resources.disk_mb == box.disk_mb
            return [] if is_same else ground.pool.new_limit(box.sandbox_id, order.resources.disk_mb)

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
        ground = self._ground
        began = time.perf_counter()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(lambda: to_the_end(_awaited(undo)))
            disks = await in_thread(ground.threads, self._begin_now, box, births)
            launched = await to_the_end(ground.launcher.launch(self._launch_order(box, order, image, disks)))
            made = time.perf_counter()
            box = replace(box, stage=Stage.RUNNING, pid=launched.pid, started=launched.started)
            ground.known[box.sandbox_id] = box
            await in_thread(ground.threads, ground.boxes.write, box)
            await self._first_answer(box)
            answered = time.perf_counter()
            ground.deaths.watch(box.sandbox_id, self._pidfd(launched))
            stack.pop_all()
        return box, {
            "launch": (made - began) * 1e3,
            "boot": (answered - made) * 1e3,
            **{f"launch.{name}": value for name, value in launched.timings_ms.items()},
        }

    def _begin_now(self, box: Box, births: Callable[[], DiskBirths]) -> DiskBirths:
        """Before anything of it is made, there is its record. Blocks."""
        self._ground.boxes.write(box)
        return births()

    def _births_now(self, order: Order, heritage: Heritage | None) -> DiskBirths:
        if heritage is not None:
            return self._keeping.births_now(order, heritage)
        limit_mb = order.resources.disk_mb
        return self._ground.pool.births(order.sandbox_id, limit_mb=limit_mb, hostname=order.hostname)

    def _launch_order(self, box: Box, order: Order, image: str, disks: DiskBirths) -> LaunchOrder:
        ground, settings = self._ground, self._ground.settings
        if box.slot is None:
            raise ProvisionFailed(step="range", why="no uid range")
        return LaunchOrder(
            tag=box.sandbox_id,
            image=image,
            disk=str(ground.pool.disk(box.sandbox_id)),
            socket=str(ground.boxes.socket(box.sandbox_id)),
            hostname=box.hostname,
            cgroups=ground.cgroups.births(box.sandbox_id, box.resources),
            disks=disks,
            first_uid=ground.ranges.first_uid(box.slot),
            uid_count=WIDTH,
            shm_bytes=shm_bytes(box.memory_mb),
            ptys=settings.ptys,
            sigpending=settings.sigpending,
            open_files=settings.open_files,
            masks=ground.masked,
            boot_id=str(uuid.uuid4()),
            volumes=tuple(
                (str(ground.pool.disk(one.volume_id)), one.path.removeprefix("/"), one.is_read_only)
                for one in order.volumes
            ),
        )

    async def _first_answer(self, box: Box) -> None:
        line = SupervisorGuest(self._ground.boxes.dial_path(box.sandbox_id))
        try:
            async with asyncio.timeout(self._ground.settings.boot_timeout_s):
                await line.ping()
        except (BackendLost, GuestMisbehaved, TimeoutError) as error:
            why = str(error) or "the supervisor did not answer in time"
            raise ProvisionFailed(step="boot", why=why) from None

    def _pidfd(self, launched: Launched) -> int:
        fd = pidfd_of(launched.pid, launched.started)
        if fd is None:
            raise ProvisionFailed(step="boot", why="the sandbox ended at once")
        return fd


def named(order: Order) -> Order:
    return order if order.hostname else replace(order, hostname="sbx-" + order.sandbox_id[4:16])


def check_order(order: Order) -> None:
    """Its words become paths, arguments and file contents."""
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
