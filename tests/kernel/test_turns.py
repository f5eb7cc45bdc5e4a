"""Turns on the event loop: what one account gets of it while others are there, and when nobody is."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from sandboxer.kernel.budget import Budget
from sandboxer.kernel.fairness import Metered, TurnBounds, Turns

SLICE_S = 0.0005


def _worked(turns: Turns, account: str, *, streams: int, seconds: float) -> float:
    """Seconds of slices that so many streams of an account are given, on a loop with nothing else to do."""
    waiting, worked, now = [(0.0, number) for number in range(streams)], 0.0, 0.0
    while (due := heapq.heappop(waiting))[0] < seconds:
        now = max(now, due[0]) + SLICE_S
        worked += SLICE_S
        turns.note("another", now)
        heapq.heappush(waiting, (now + turns.spend(account, SLICE_S, now), due[1]))
    return worked


@pytest.mark.parametrize("streams", [1, 2, 50])
def test_however_many_streams_it_has_an_account_gets_one_share(streams: int) -> None:
    bounds = TurnBounds(share=0.2, stretch_s=0.03)
    worked = _worked(Turns(bounds), "greedy", streams=streams, seconds=10.0)
    # Each stream has its first slice before anybody can know of the others.
    assert worked <= 0.2 * 10.0 + 0.03 + streams * SLICE_S
    assert worked >= 0.15 * 10.0


@pytest.mark.parametrize("others", [1, 3, 9])
def test_a_share_is_one_among_all_who_are_there(others: int) -> None:
    """Two accounts of one tenant had the whole loop, half of it each."""
    turns, worked, now = Turns(TurnBounds(stretch_s=0.01)), 0.0, 0.0
    due = {f"greedy {number}": 0.0 for number in range(others)}
    while now < 10.0:
        turns.note("calm", now)
        account = min(due, key=due.__getitem__)
        now = max(now, due[account]) + SLICE_S
        worked += SLICE_S
        turns.note(account, now)
        due[account] = now + turns.spend(account, SLICE_S, now)
    assert worked <= 10.0 * others / (others + 1) * 1.1 + 0.1


@pytest.mark.parametrize("others", [1, 10, 100])
def test_a_crowd_that_hardly_asks_leaves_the_loop_to_who_works(others: int) -> None:
    """A hundred addresses, each with one small request a second, had it all but two hundredths."""
    turns, worked, now = Turns(), 0.0, 0.0
    asks = [(number / others, number) for number in range(others)]
    while now < 20.0:
        while asks[0][0] <= now:
            at, number = heapq.heappop(asks)
            turns.note(f"stranger {number}", now)
            turns.spend(f"stranger {number}", 0.001, now)
            heapq.heappush(asks, (at + 1.0, number))
        turns.note("busy", now)
        worked += SLICE_S
        now += SLICE_S
        now += turns.spend("busy", SLICE_S, now)
    assert worked >= 20.0 * (0.5 - others * 0.001) * 0.9


async def test_a_crowd_that_waits_does_not_begin_all_at_once() -> None:
    turns = Turns(TurnBounds(share=0.5, stretch_s=0.01))
    turns.note("another", time.monotonic())
    turns.spend("greedy", 0.1, time.monotonic())
    crowd = [asyncio.create_task(turns.admit("greedy")) for _ in range(300)]
    most, before = 0, 0
    while before < len(crowd):
        turns.note("another", time.monotonic())
        await asyncio.sleep(0.001)
        done = sum(one.done() for one in crowd)
        most, before = max(most, done - before), done
    assert most < 100


async def test_strangers_of_one_address_share_a_turn_and_those_of_another_do_not_wait_for_them() -> None:
    budget = Budget(turns=Turns(TurnBounds(share=0.5, stretch_s=0.0)))
    await budget.lease("team").is_for("team")
    with budget.lease("strangers") as flood, budget.lease("strangers") as calm:
        await flood.is_from("192.0.2.1")

        async def busy() -> None:
            _compute(0.1)

        await flood.metered(busy())
        again = asyncio.create_task(flood.is_from("192.0.2.1"))
        await asyncio.wait_for(calm.is_from("192.0.2.2"), 0.05)
        assert not again.done()
        await again


def test_who_is_alone_never_waits() -> None:
    turns = Turns(TurnBounds(there_s=1.0))
    turns.note("only", 100.0)
    assert sum(turns.spend("only", 1.0, 100.0 + second) for second in range(50)) == 0.0


def test_who_came_once_is_forgotten() -> None:
    turns = Turns()
    for second in range(5000):
        turns.note(f"address {second}", second * 2.0)
        turns.spend(f"address {second}", 0.001, second * 2.0)
    assert len(turns._asked_at) <= 1001
    assert len(turns._recent) <= 1100


def test_a_stretch_goes_by_without_waiting() -> None:
    turns = Turns(TurnBounds(share=0.2, stretch_s=0.03))
    turns.note("another", 0.0)
    assert turns.spend("calm", 0.02, 0.5) == 0.0
    # Half a second later it is whole again.
    assert turns.spend("calm", 0.02, 1.0) == 0.0
    assert turns.spend("calm", 0.02, 1.0) > 0.0


def test_an_account_counts_as_there_for_a_moment_after_its_last_request() -> None:
    turns = Turns(TurnBounds(there_s=1.0))
    turns.note("first", 10.0)
    turns.note("second", 10.5)
    turns.note("first", 10.9)
    assert not turns.is_alone("first", 11.4)
    assert turns.is_alone("first", 11.6)
    assert not turns.is_alone("second", 11.8)


async def test_who_had_more_than_its_share_waits_and_somebody_else_does_not() -> None:
    turns = Turns(TurnBounds(share=0.5, stretch_s=0.01))
    turns.note("another", time.monotonic())
    turns.spend("greedy", 0.05, time.monotonic())
    late = asyncio.create_task(turns.admit("greedy"))
    await asyncio.wait_for(turns.admit("another"), 0.05)
    await asyncio.sleep(0)
    assert not late.done()
    await late


async def test_the_loop_time_of_a_coroutine_is_counted_step_by_step_and_its_waiting_is_not() -> None:
    heard: list[float] = []

    async def work() -> str:
        for _ in range(3):
            _compute(0.01)
            await asyncio.sleep(0.3)
        return "done"

    assert await Metered(work(), heard.append) == "done"
    # In parts, while it lasts.
    assert len(heard) == 4
    assert 0.03 <= sum(heard) < 0.6


async def test_a_metered_coroutine_can_be_cancelled_and_its_failure_is_its_own() -> None:
    heard: list[float] = []

    async def stuck() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append(-1.0)
            raise

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("its own")

    task = asyncio.create_task(_metered(stuck(), heard))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard[0] == -1.0
    with pytest.raises(ValueError, match="its own"):
        await Metered(broken(), heard.append)
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Metered(asyncio.sleep(60), heard.append)


async def _metered(work: Coroutine[Any, Any, None], heard: list[float]) -> None:
    await Metered(work, heard.append)


def _compute(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


async def test_a_lease_knows_for_whom_its_slices_are() -> None:
    budget = Budget(turns=Turns(TurnBounds(share=0.5, stretch_s=0.0)))
    loop = asyncio.get_running_loop()
    with budget.lease("strangers") as another, budget.lease("strangers") as greedy:
        await greedy.is_for("greedy")
        await another.is_for("another")
        began = loop.time()
        await greedy.in_turn(0.05)
        assert loop.time() - began >= 0.04
