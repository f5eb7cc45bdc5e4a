"""One act on a sandbox at a time, also for whoever comes while the last one is leaving."""

from __future__ import annotations

import asyncio
import gc
from weakref import WeakValueDictionary

from sandboxer.backends.namespaces.dependencies import BackendDependencies


async def test_whoever_waits_for_a_sandbox_and_whoever_comes_then_share_its_lock() -> None:
    dependencies = BackendDependencies.__new__(BackendDependencies)
    dependencies.locks = WeakValueDictionary()
    inside: list[str] = []

    async def act(name: str, then: asyncio.Event | None = None) -> None:
        async with dependencies.one_at_a_time("sbx_1"):
            inside.append(name)
            assert len(inside) == 1, f"{inside} at once"
            if then:
                await then.wait()
            await asyncio.sleep(0)
            inside.remove(name)

    may_leave = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(act("making", may_leave))
        await asyncio.sleep(0)
        group.create_task(act("waiting"))
        await asyncio.sleep(0)
        may_leave.set()
        for _ in range(5):
            await asyncio.sleep(0)
            group.create_task(act("late"))
    gc.collect()
    assert not dependencies.locks
