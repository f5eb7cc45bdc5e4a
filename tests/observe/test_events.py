from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from sandboxer.observe.events import Event, Events, record
from sandboxer.store.engine import Store, open_store

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def emitted(subject: str = "sbx_a", number: int = 0, times: int = 1):
    def tell(conn):
        for _ in range(times):
            record(conn, subject=subject, kind="k", actor="test", reason="r", at=NOW, data={"number": number})

    return tell


async def take(stream: AsyncIterator[Event], wanted: int) -> list[Event]:
    received: list[Event] = []
    async with asyncio.timeout(30):
        async for event in stream:
            received.append(event)
            if len(received) == wanted:
                break
    return received


async def test_an_event_comes_back_as_it_was_recorded(store: Store) -> None:
    data = {"nested": {"list": [1, None, "\x00"]}}
    await store.write(
        lambda conn: record(
            conn, subject="sbx_a", kind="ready", actor="sbx-pk-x", reason="probe_passed", at=NOW, data=data
        )
    )
    (event,) = await Events(store).page("sbx_a")
    assert event == Event(
        id=event.id,
        subject="sbx_a",
        kind="ready",
        actor="sbx-pk-x",
        reason="probe_passed",
        at=NOW,
        data=data,
    )


async def test_a_change_that_fails_tells_nothing(store: Store) -> None:
    def fails(conn):
        emitted()(conn)
        raise RuntimeError("after telling")

    with pytest.raises(RuntimeError):
        await store.write(fails)
    assert await Events(store).page(None) == []
    assert await Events(store).last_id() == 0


async def test_pages_go_by_subject_and_cursor(store: Store) -> None:
    log = Events(store)
    for number in range(10):
        await store.write(emitted("sbx_a" if number % 2 else "sbx_b", number))
    everything = await log.page(None)
    assert [event.data["number"] for event in everything] == list(range(10))
    assert [event.data["number"] for event in await log.page("sbx_a", 0, 2)] == [1, 3]
    assert await log.page(None, everything[-3].id) == everything[-2:]
    assert await log.last_id() == everything[-1].id


async def test_a_follower_hears_what_was_and_what_comes_each_once(store: Store) -> None:
    log = Events(store)
    for number in range(250):
        await store.write(emitted(number=number))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(take(log.follow(None), 400))
        for number in range(250, 400):
            await store.write(emitted(number=number))
    assert [event.data["number"] for event in following.result()] == list(range(400))


async def test_a_follower_goes_on_from_where_it_left(store: Store) -> None:
    log = Events(store)
    await store.write(emitted(times=5))
    first = await take(log.follow(None), 2)
    rest = await take(log.follow(None, first[-1].id), 3)
    assert len({event.id for event in first + rest}) == 5


async def test_a_follower_of_one_subject_is_not_woken_for_others(store: Store) -> None:
    log = Events(store)
    reads = 0
    page = log.page

    async def counted(*args):
        nonlocal reads
        reads += 1
        return await page(*args)

    log.page = counted  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        following = group.create_task(take(log.follow("sbx_mine"), 1))
        for _ in range(20):
            await store.write(emitted("sbx_other"))
        before = reads
        await store.write(emitted("sbx_mine", 7))
    assert [event.data["number"] for event in following.result()] == [7]
    assert before == 1


async def test_a_slow_follower_holds_one_page_and_loses_nothing(store: Store) -> None:
    log = Events(store)
    async with aclosing(log.follow(None)) as stream:
        await store.write(emitted())
        await anext(stream)
        for number in range(1, 301):
            await store.write(emitted(number=number))
        # It slept through all of it: nothing was queued for it, everything is there.
        assert [event.data["number"] for event in await take(stream, 300)] == list(range(1, 301))


async def test_a_follower_that_leaves_is_forgotten(store: Store) -> None:
    log = Events(store)
    async with aclosing(log.follow(None)) as stream:
        await store.write(emitted())
        await anext(stream)
        assert log._followers
    assert not log._followers


async def test_a_cancelled_follower_is_forgotten(store: Store) -> None:
    log = Events(store)
    task = asyncio.create_task(take(log.follow("sbx_never"), 1))
    await store.write(emitted())
    assert log._followers
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A generator left in the middle is closed by the loop, a moment later.
    gc.collect()
    await store.write(emitted())
    assert not log._followers


async def test_followers_get_the_rest_and_end_when_the_log_is_closed(store: Store) -> None:
    log = Events(store)
    await store.write(emitted())
    waiting = asyncio.create_task(take(log.follow("sbx_never"), 1))
    async with aclosing(log.follow(None)) as stream:
        await anext(stream)
        await store.write(emitted(number=7))
        log.close()
        assert [event.data["number"] async for event in stream] == [7]
    assert await waiting == []


async def test_ids_never_go_back_for_a_reader_beside_many_writers(database_url: str) -> None:
    """PostgreSQL gives ids before commit: without the write lock a later id becomes visible first."""
    stores = [open_store(database_url) for _ in range(4)]
    watcher = Events(stores[0])
    total = 4 * 50

    async def write_all(store: Store) -> None:
        for number in range(50):
            await store.write(emitted(number=number, times=1 + number % 3))

    async def watch() -> list[int]:
        """Reads as fast as it can, remembering only the highest id, as every follower does."""
        seen: list[int] = []
        wanted = sum(4 * (1 + number % 3) for number in range(50))
        async with asyncio.timeout(60):
            while len(seen) < wanted:
                seen += [event.id for event in await watcher.page(None, seen[-1] if seen else 0)]
        return seen

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        for store in stores:
            group.create_task(write_all(store))
    seen = watching.result()
    assert seen == sorted(set(seen))
    assert len(seen) >= total
    for store in stores:
        await store.close()


async def test_ids_are_never_given_twice(store: Store) -> None:
    await store.write(emitted(times=3))
    last = await Events(store).last_id()
    await store.write(lambda conn: conn.exec_driver_sql("DELETE FROM events"))
    await store.write(emitted())
    assert await Events(store).last_id() > last
