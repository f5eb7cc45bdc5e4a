from __future__ import annotations

import asyncio
import threading
import time

import pytest

from sandboxer.kernel.errors import NotFound, Unavailable
from sandboxer.store import engine
from sandboxer.store.engine import Store
from tests.support.store import a_record, count


async def test_a_write_returns_what_its_function_returned_and_is_seen_by_reads(store: Store) -> None:
    assert await store.write(lambda conn: a_record(conn) or "answer") == "answer"
    assert await store.read(count) == 1


async def test_a_write_that_raises_leaves_nothing(store: Store) -> None:
    def broken(conn):
        a_record(conn)
        raise NotFound(what="thing", id="x")

    with pytest.raises(NotFound):
        await store.write(broken)
    assert await store.read(count) == 0
    await store.write(a_record)
    assert await store.read(count) == 1


async def test_who_asks_nothing_is_answered_before_and_after_others(store: Store) -> None:
    assert [await store.read(lambda conn: "nothing") for _ in range(4)] == ["nothing"] * 4
    assert await store.write(lambda conn: "nothing") == "nothing"
    await store.write(a_record)
    assert [await store.read(lambda conn: "nothing") for _ in range(4)] == ["nothing"] * 4
    assert await store.read(count) == 1


async def test_a_read_cannot_write(store: Store) -> None:
    with pytest.raises(Unavailable if store.database.kind == "sqlite" else Exception):
        await store.read(a_record)
    assert await store.read(count) == 0


async def test_a_read_sees_one_moment_from_start_to_end(store: Store) -> None:
    reading, written = threading.Event(), threading.Event()

    def twice(conn):
        first = count(conn)
        reading.set()
        assert written.wait(10)
        return first, count(conn)

    async with asyncio.TaskGroup() as group:
        seen = group.create_task(store.read(twice))
        await asyncio.to_thread(reading.wait, 10)
        await store.write(a_record)
        written.set()
    assert seen.result() == (0, 0)


async def test_a_cancelled_write_is_over_when_the_cancellation_arrives_and_was_done_whole(
    store: Store,
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(conn):
        a_record(conn)
        inside.set()
        assert go_on.wait(10)
        a_record(conn)

    task = asyncio.create_task(store.write(slow))
    await asyncio.to_thread(inside.wait, 10)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.read(count) == 2


async def test_cancelled_callers_in_a_crowd_never_tear_a_transaction(store: Store) -> None:
    def pair(conn):
        a_record(conn)
        a_record(conn)

    tasks = [asyncio.create_task(store.write(pair)) for _ in range(60)]
    await asyncio.sleep(0.005)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait(tasks)
    assert await store.read(count) == 120


async def test_writes_happen_in_the_order_they_were_asked_for(store: Store) -> None:
    done: list[int] = []
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(store.write(lambda _, number=number: done.append(number)))
    assert done == list(range(50))


async def test_listeners_hear_of_committed_announcements_only(store: Store) -> None:
    heard: list[frozenset[str]] = []
    leave = store.on_commit(heard.append)

    def broken(conn):
        a_record(conn, "sbx_lost")
        raise NotFound(what="thing", id="x")

    with pytest.raises(NotFound):
        await store.write(broken)
    await store.write(count)
    await store.write(lambda conn: (a_record(conn, "sbx_a"), a_record(conn, "sbx_b")))
    assert heard == [frozenset({"sbx_a", "sbx_b"})]
    leave()
    await store.write(a_record)
    assert len(heard) == 1


async def test_a_failing_listener_harms_nobody(store: Store) -> None:
    heard: list[frozenset[str]] = []

    def failing(_):
        raise RuntimeError("mine")

    store.on_commit(failing)
    store.on_commit(heard.append)
    await store.write(a_record)
    assert heard


async def test_a_closed_store_says_so_after_finishing_what_was_asked(store: Store) -> None:
    task = asyncio.create_task(store.write(lambda conn: (time.sleep(0.02), a_record(conn), "done")[-1]))
    await asyncio.sleep(0)
    await store.close()
    assert await task == "done"
    with pytest.raises(Unavailable):
        await store.read(count)
    await store.close()


async def test_what_waits_for_the_database_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_WAITING", 5)
    inside, go_on = threading.Event(), threading.Event()
    first = asyncio.create_task(store.write(lambda _: (inside.set(), go_on.wait(10))))
    await asyncio.to_thread(inside.wait, 10)
    waiting = [asyncio.create_task(store.write(a_record)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="keep up"):
        await store.write(a_record)
    go_on.set()
    await asyncio.wait([first, *waiting])
    assert await store.read(count) == 5
