"""Work beside the loop: accounts take turns, and each has seconds of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from sandboxer.kernel.errors import OverBudget
from sandboxer.kernel.fairness import AccountQueues, LocalAllowances, WorkBounds


@pytest.fixture
def queues() -> Iterator[AccountQueues]:
    made = AccountQueues(WorkBounds(threads=1, waiting=50))
    yield made
    made.close()


async def test_an_account_with_much_to_do_does_not_keep_another_waiting(queues: AccountQueues) -> None:
    gate, order = threading.Event(), list[str]()

    def work(name: str) -> None:
        gate.wait(10)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(queues.run("greedy", lambda n=n: work(f"greedy {n}")))
        await asyncio.sleep(0)
        group.create_task(queues.run("modest", lambda: work("modest")))
        await asyncio.sleep(0)
        gate.set()
    assert order.index("modest") <= 2


async def test_one_account_has_one_thread_at_a_time() -> None:
    queues = AccountQueues(WorkBounds(threads=4))
    busy, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.thread_time()
        with lock:
            busy -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(queues.run("a", work))
    queues.close()
    assert most == 1


async def test_what_the_work_gives_and_raises_reaches_who_asked(queues: AccountQueues) -> None:
    def broken() -> None:
        raise ValueError("odd")

    assert await queues.run("a", lambda: 42) == 42
    with pytest.raises(ValueError, match="odd"):
        await queues.run("a", broken)
    assert await queues.run("a", lambda: 43) == 43


async def test_work_that_nobody_waits_for_is_not_begun(queues: AccountQueues) -> None:
    gate, done = threading.Event(), list[str]()
    first = asyncio.create_task(queues.run("a", lambda: gate.wait(10)))
    left = asyncio.create_task(queues.run("a", lambda: done.append("left")))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    gate.set()
    assert await first
    await queues.run("a", lambda: done.append("last"))
    assert done == ["last"]


async def test_a_full_lane_and_a_spent_allowance_are_refused_as_the_accounts_own() -> None:
    bounds = WorkBounds(threads=1, waiting=1, stretch_s=1.0, refill=0.1, wait_s=5.0)
    queues = AccountQueues(bounds, LocalAllowances(bounds))
    gate = threading.Event()
    under_way = [asyncio.create_task(queues.run("a", lambda: gate.wait(10))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(OverBudget):
        await queues.run("a", lambda: None)
    gate.set()
    await asyncio.wait(under_way)
    assert queues.allowances is not None
    queues.allowances.spend("a", 3.0, time.monotonic())
    with pytest.raises(OverBudget) as refused:
        await queues.run("a", lambda: None)
    assert 15 <= int(str(refused.value.facts["retry_after_s"])) <= 21
    assert await queues.run("b", lambda: "others go on") == "others go on"
    queues.close()


def test_an_allowance_refills_to_its_stretch_and_no_further() -> None:
    seconds = LocalAllowances(WorkBounds(stretch_s=10.0, refill=0.5))
    seconds.spend("a", 12.0, 0.0)
    assert seconds.owed_s("a", 0.0) == pytest.approx(4.0)
    assert seconds.owed_s("a", 3.0) == pytest.approx(1.0)
    assert seconds.owed_s("a", 1000.0) == 0.0
    seconds.spend("a", 11.0, 1000.0)
    assert seconds.owed_s("a", 1000.0) == pytest.approx(2.0)
    assert seconds.owed_s("b", 0.0) == 0.0
