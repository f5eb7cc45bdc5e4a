"""Checks of changing a running sandbox's limits."""

from __future__ import annotations

from dataclasses import replace

from sandboxer.backends.checks.suite import Bench, Suite, expect, raises
from sandboxer.backends.contract import Capability, Resizes
from sandboxer.kernel.errors import InvalidRequest, NoCapacity

suite = Suite()
MB = 1024 * 1024


@suite.check("an agent's build needs more for a minute", needs=Capability.RESIZE)
async def resizing_changes_the_limits_of_what_runs(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Resizes)
    async with bench.box(memory_mb=64) as box:
        had = box.order.resources
        await box.run("echo here > /tmp/kept")
        await backend.resize(box.handle, replace(had, memory_mb=128, pids=had.pids + 8))
        usage = await backend.usage(box.handle)
        expect(usage.memory_limit_bytes == 128 * MB, f"the limit is {usage.memory_limit_bytes}")
        expect(usage.processes_limit == had.pids + 8, f"the limit is {usage.processes_limit}")
        expect((await box.run("cat /tmp/kept")).stdout == b"here\n", "what ran or was kept is gone")
        await backend.resize(box.handle, had)
        usage = await backend.usage(box.handle)
        expect(usage.memory_limit_bytes == 64 * MB, f"the limit is {usage.memory_limit_bytes}")


@suite.check("a host promises only what it has", needs=Capability.RESIZE)
async def resizing_beyond_the_host_is_refused_and_changes_nothing(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Resizes)
    async with bench.box(memory_mb=64) as box:
        had = box.order.resources
        async with raises(NoCapacity, InvalidRequest):
            await backend.resize(box.handle, replace(had, memory_mb=2**34))
        usage = await backend.usage(box.handle)
        expect(usage.memory_limit_bytes == 64 * MB, f"the limit is {usage.memory_limit_bytes}")
