"""A backend that keeps what runs together with its disk: the engine of `ext.namespaces` over states that
gVisor writes (`backends/oci/memory.py`).

A state is kept with a kept disk, until that is dropped, or with a stopped sandbox, until it runs again: then
its files go on changing, and the state is of the past.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from sandboxer.backends.contract import Content, Handle, KeptDisk, KeptSizes, Order, Resources
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.backend import FREEZE_TIMEOUT_S
from sandboxer.backends.namespaces.box import Box, Stage
from sandboxer.backends.namespaces.dependencies import BackendDependencies
from sandboxer.backends.oci.gvisor import GvisorReach
from sandboxer.backends.oci.memory import MemoryFolder
from sandboxer.backends.reports import CleanupReport
from sandboxer.backends.shared import started_at
from sandboxer.kernel.tasks import in_thread, to_the_end

log = logging.getLogger(__name__)
Timings = dict[str, float]
T = TypeVar("T")


class RememberingBackend(NamespacesBackend):
    def __init__(
        self, dependencies: BackendDependencies, memory: MemoryFolder, limit: Callable[[str, int], None]
    ) -> None:
        """`limit`: gives a sandbox that runs so many processes, where the host cannot. Blocks."""
        super().__init__(dependencies)
        assert isinstance(dependencies.reach, GvisorReach)
        self._reach = dependencies.reach
        self._memory = memory
        self._limit = limit
        stopped = [box.sandbox_id for box in dependencies.known.values() if box.stage is not Stage.RUNNING]
        memory.sweep([*(one.id for one in dependencies.heritages.kept()), *stopped])
        for sandbox_id in memory.left_still():
            self._let_go_on(sandbox_id)

    async def provision(self, order: Order) -> Handle:
        if order.origin is not None:
            self._memory.check(order.origin, order)
        return await super().provision(order)

    async def resize(self, handle: Handle, resources: Resources) -> None:
        """Gives other limits, as in `Resizes`; what programs are told of processors and memory stays."""
        before = self._box(handle.sandbox_id).pids
        await super().resize(handle, resources)
        if resources.pids != before:
            await asyncio.to_thread(self._limit, handle.sandbox_id, resources.pids)

    async def take_with_memory(self, handle: Handle, disk_id: str) -> KeptDisk:
        sandbox_id = handle.sandbox_id

        async def act() -> KeptDisk:
            saved = await self._save(sandbox_id, disk_id)
            try:
                kept = await self._keeping.take(self._box(sandbox_id), disk_id)
                await asyncio.to_thread(self._memory.settle, disk_id)
            except BaseException:
                await asyncio.to_thread(self._memory.drop_new, disk_id)
                raise
            return replace(kept, content=Content.FILES_AND_MEMORY, at_most_bytes=kept.at_most_bytes + saved)

        async def share() -> KeptDisk:
            kept = await self._keeping.take(self._box(sandbox_id), disk_id)
            await asyncio.to_thread(self._memory.lend, sandbox_id, disk_id)
            more = await asyncio.to_thread(self._memory.size, disk_id)
            return replace(kept, content=Content.FILES_AND_MEMORY, at_most_bytes=kept.at_most_bytes + more)

        async with self.dependencies.one_at_a_time(sandbox_id):
            if self._box(sandbox_id).stage is Stage.STOPPED and self._memory.has(sandbox_id):
                return await to_the_end(share())
            return await to_the_end(self._while_still(sandbox_id, act))

    async def suspend(self, handle: Handle) -> int:
        sandbox_id = handle.sandbox_id

        async def act() -> int:
            saved = await self._save(sandbox_id, sandbox_id)
            try:
                await self._ending.stop(sandbox_id)
            except BaseException:
                await asyncio.to_thread(self._memory.drop_new, sandbox_id)
                raise
            # Not before: as long as it might run on, this would be of the past.
            await asyncio.to_thread(self._memory.settle, sandbox_id)
            return saved

        async with self.dependencies.one_at_a_time(sandbox_id):
            if self._box(sandbox_id).stage is Stage.STOPPED:
                return await asyncio.to_thread(self._memory.size, sandbox_id)
            self._guests.pop(sandbox_id, None)
            await asyncio.to_thread(self._memory.drop, sandbox_id)
            return await to_the_end(self._while_still(sandbox_id, act))

    async def stop(self, handle: Handle) -> None:
        await super().stop(handle)
        # What ran in one that was stopped before ends with it.
        await asyncio.to_thread(self._memory.drop, handle.sandbox_id)

    async def resume(self, handle: Handle, order: Order) -> Handle:
        self._memory.check(handle.sandbox_id, order)
        resumed = await super().resume(handle, order)
        await asyncio.to_thread(self._memory.drop, handle.sandbox_id)
        return resumed

    async def restore(self, handle: Handle, order: Order, disk_id: str, *, start: bool) -> Handle:
        if start:
            self._memory.check(disk_id, order)
        return await super().restore(handle, order, disk_id, start=start)

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        # First: as long as anything is left, its record is.
        await asyncio.to_thread(self._memory.drop, sandbox_id)
        report = await super().teardown_with_report(sandbox_id)
        await asyncio.to_thread(self._memory.forget_still, sandbox_id)
        self._reach.forget(sandbox_id)
        return report

    async def drop(self, disk_id: str) -> None:
        await asyncio.to_thread(self._memory.drop, disk_id)
        await super().drop(disk_id)

    async def sizes(self, disk_id: str) -> KeptSizes:
        files = await super().sizes(disk_id)
        memory = await asyncio.to_thread(self._memory.size, disk_id)
        return KeptSizes(
            referenced_bytes=files.referenced_bytes + memory, exclusive_bytes=files.exclusive_bytes + memory
        )

    async def _stop(self, sandbox_id: str) -> None:
        was = self._box(sandbox_id).stage
        await super()._stop(sandbox_id)
        if was is Stage.RUNNING:
            # A start that a crash cut off has not changed anything yet: what it began from is kept.
            await asyncio.to_thread(self._memory.drop, sandbox_id)

    async def _replace_disk(self, sandbox_id: str, disk_id: str) -> Box:
        box = await super()._replace_disk(sandbox_id, disk_id)
        await asyncio.to_thread(self._memory.drop, sandbox_id)
        return box

    async def _start_restored(self, box: Box, order: Order, disk_id: str) -> tuple[Box, Timings]:
        if not self._memory.has(disk_id):
            return await super()._start_restored(box, order, disk_id)
        try:
            await asyncio.to_thread(self._memory.lend, disk_id, box.sandbox_id)
            return await super()._start_restored(box, order, disk_id)
        finally:
            await asyncio.to_thread(self._memory.drop, box.sandbox_id)

    async def _save(self, sandbox_id: str, name: str) -> int:
        box = self._box(sandbox_id)
        used = self.dependencies.cgroups.counted(sandbox_id).memory_bytes
        return await in_thread(
            self.dependencies.threads,
            lambda: self._memory.save(sandbox_id, name, memory_mb=box.memory_mb, expected_bytes=used),
        )

    async def _while_still(self, sandbox_id: str, act: Callable[[], Awaitable[T]]) -> T:
        """Does something while everything that runs stands still. A crash meanwhile is noted: the next start
        lets it go on.
        """
        was_frozen = self.dependencies.reach.is_frozen(sandbox_id)
        async with self._reach.lines(sandbox_id).cut():
            if not was_frozen:
                await asyncio.to_thread(self._memory.note_still, sandbox_id)
            try:
                await self._set_frozen(sandbox_id, True)
                return await act()
            finally:
                if not was_frozen:
                    if self.dependencies.has_processes(self._box(sandbox_id)):
                        await self._set_frozen(sandbox_id, False)
                    await asyncio.to_thread(self._memory.forget_still, sandbox_id)

    def _let_go_on(self, sandbox_id: str) -> None:
        """Lets a sandbox go on that a killed server had stand still. Blocks, at the start."""
        box = self.dependencies.known.get(sandbox_id)
        is_there = box is not None and box.stage is Stage.RUNNING and started_at(box.pid) == box.started
        if is_there and not self._reach.let_go_on(sandbox_id, FREEZE_TIMEOUT_S):
            log.error("%s stands still since a server was killed that saved it", sandbox_id)
            return
        self._memory.forget_still(sandbox_id)
