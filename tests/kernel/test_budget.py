"""The budget: what is small is nobody's, what is large is counted twice, and all of it comes back."""

from __future__ import annotations

import asyncio

import pytest

from sandboxer.kernel.budget import SMALL, Budget, BudgetBounds
from sandboxer.kernel.errors import NoCapacity, OverBudget

MB = 1 << 20
BOUNDS = BudgetBounds(host_bytes=3 * MB, account_bytes=2 * MB, wait_s=0.2)


async def test_what_is_small_is_not_counted_and_what_is_large_is_given_back() -> None:
    budget = Budget(BOUNDS)
    with budget.lease("a") as lease:
        await lease.grow(SMALL)
        assert budget.held() == 0
        await lease.grow(1)
        assert budget.held() == budget.held("a") == 2 * SMALL
        lease.shrink(1)
        assert budget.held() == 0
        await lease.grow(MB)
    assert budget.held() == budget.held("a") == 0


async def test_it_is_said_whose_bound_was_met() -> None:
    budget = Budget(BOUNDS)
    with budget.lease("a") as one, budget.lease("b") as other:
        await one.grow(2 * MB)
        with pytest.raises(OverBudget):
            await one.grow(1)
        with pytest.raises(NoCapacity):
            await other.grow(2 * MB)
        await other.grow(MB)
        assert budget.held() == 3 * MB
    assert budget.held() == 0


async def test_who_waits_a_little_gets_what_another_gives_back() -> None:
    budget = Budget(BOUNDS)
    first = budget.lease("a")
    await first.grow(2 * MB)
    with budget.lease("a") as second:
        asyncio.get_running_loop().call_later(0.05, first.close)
        await second.grow(MB)
        assert budget.held("a") == MB


async def test_nothing_is_taken_by_a_lease_that_ended() -> None:
    budget = Budget(BOUNDS)
    lease = budget.lease("a")
    lease.close()
    with pytest.raises(RuntimeError):
        await lease.grow(MB)
    assert budget.held() == 0


def test_places_are_few_for_one_and_in_all() -> None:
    budget = Budget(BOUNDS)
    with budget.slot("imports", "a", per_account=1, in_all=2):
        with pytest.raises(OverBudget), budget.slot("imports", "a", per_account=1, in_all=2):
            pass
        with (
            budget.slot("imports", "b", per_account=1, in_all=2),
            pytest.raises(NoCapacity),
            budget.slot("imports", "c", per_account=1, in_all=2),
        ):
            pass
    with budget.slot("imports", "a", per_account=1, in_all=2):
        pass
