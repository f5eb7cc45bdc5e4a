"""What a backend of containers says of itself, of money, of what is used and of what it removed, held against
what was really done. For tests that have an engine running already.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal

import pytest

from sandboxer.backends.checks.suite import Box
from sandboxer.backends.contract import Backend
from sandboxer.backends.reports import CleanupReport, CostEstimate, estimate_of, torn_down
from sandboxer.kernel.errors import InvalidRequest
from tests.support.real_backend import make_order

BURN = "import time\nwhile time.process_time() < 1: pass"
SLEEPERS, BALLAST_MB = 5, 32


async def demand_an_honest_estimate(backend: Backend) -> None:
    """Nobody charges for a container of an engine of one's own; what is refused has no price."""
    order = make_order()
    assert await estimate_of(backend, order, hours=Decimal(24)) == CostEstimate(unit="usd")
    with pytest.raises(InvalidRequest):
        await estimate_of(backend, replace(order, image="no-such-image"), hours=Decimal(1))
    assert not await backend.inventory()


async def demand_a_true_meter(backend: Backend) -> None:
    """Usage grows by what was used."""
    order = make_order()
    handle = await backend.provision(order)
    box = Box(backend, order, handle)  # type: ignore[arg-type]
    before = await backend.usage(handle)
    await box.run(["/usr/bin/python3", "-c", BURN])
    await box.run(f"dd if=/dev/urandom of=/workspace/ballast bs=1M count={BALLAST_MB}; sync")
    await box.run(f"for i in $(seq {SLEEPERS}); do setsid sleep 1000 >/dev/null 2>&1 & done")
    after = await backend.usage(handle)
    assert 0.9 <= after.cpu_s - before.cpu_s < 30
    assert BALLAST_MB * 10**6 <= after.disk_bytes - before.disk_bytes < 2 * BALLAST_MB * 2**20
    assert after.processes - before.processes >= SLEEPERS
    assert 0 < after.memory_bytes <= after.memory_limit_bytes == order.resources.memory_mb * 2**20
    await backend.teardown(order.sandbox_id)


async def demand_a_true_report(backend: Backend, expected: Collection[str]) -> None:
    order = make_order()
    await backend.provision(order)
    report = await torn_down(backend, order.sandbox_id)
    assert report is not None
    assert (set(report.removed), report.left) == (set(expected), ())
    assert await torn_down(backend, order.sandbox_id) == CleanupReport()
    assert not await backend.inventory()
