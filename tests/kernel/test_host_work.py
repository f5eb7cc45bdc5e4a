"""What the host does for an account counts for it, and who gives way has it done piece by piece."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from sandboxer.kernel.budget import Budget
from sandboxer.kernel.fairness import BEHALF, AccountQueues, Behalf, HostWork
from sandboxer.kernel.tasks import in_thread, own_tasks
from sandboxer.sandboxes.operations import Operations


def busy(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


async def test_work_in_threads_of_the_backend_counts_for_whose_request_it_is() -> None:
    budget = Budget()

    async def request(account: str, seconds: float) -> None:
        with budget.lease("") as lease:
            await lease.is_for(account)
            # As an operation is: in a task of the platform, beside the request.
            async with own_tasks() as tasks:
                operation = Operations(tasks)
                await operation.perform("sbx", "create", lambda: in_thread(threads, busy, seconds))

    with ThreadPoolExecutor(2) as threads:
        await in_thread(threads, busy, 0.03)
        assert budget.queues.worked_s() == {}
        await asyncio.gather(request("one", 0.03), request("two", 0.06))
    worked = budget.queues.worked_s()
    assert worked.keys() == {"one", "two"}
    assert worked["one"] >= 0.03
    assert worked["two"] >= 0.06


async def test_who_gives_way_begins_one_piece_after_another_and_others_all_at_once() -> None:
    work = HostWork()

    async def piece(account: str) -> float:
        BEHALF.set(Behalf(account, AccountQueues()))
        async with work.turn():
            began = time.monotonic()
            await asyncio.sleep(0.02)
        return began

    async def spread(account: str) -> float:
        began = await asyncio.gather(*(piece(account) for _ in range(4)))
        return max(began) - min(began)

    assert await spread("heavy") < 0.1
    work.give_way({"heavy"})
    assert await spread("heavy") > 0.12
    assert await spread("other") < 0.1
    work.give_way(())
    assert await spread("heavy") < 0.1


async def test_pieces_of_who_gives_way_may_wait_for_each_other() -> None:
    """A snapshot is an operation on the snapshot and one on its sandbox, which may be busy with another."""
    work = HostWork()
    work.give_way({"heavy"})
    BEHALF.set(Behalf("heavy", AccountQueues()))
    async with own_tasks() as tasks:
        artifacts, sandboxes = Operations(tasks, work), Operations(tasks, work)
        begun = asyncio.Event()

        async def freeze() -> None:
            begun.set()
            await asyncio.sleep(0.05)

        async def nothing() -> str:
            return "taken"

        async def take() -> str:
            sandboxes.start("sbx", "freeze", freeze)
            return await sandboxes.perform("sbx", "snapshot", nothing)

        async with asyncio.timeout(5):
            waiting = sandboxes.start("sbx", "thaw", freeze)
            await asyncio.gather(begun.wait(), sandboxes.outcome(waiting))
            assert await artifacts.perform("snp", "create", take) == "taken"
