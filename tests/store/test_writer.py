"""Writes that share a commit: each stays a transaction of its own, and nobody is answered too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sandboxer.kernel.errors import Broken, NotFound
from sandboxer.store import writer
from sandboxer.store.engine import Store, open_store
from tests.support.store import a_record, count, fresh_database


@asynccontextmanager
async def held_back(store: Store) -> AsyncIterator[None]:
    """What is asked for inside waits for the writer together."""
    inside, go_on = threading.Event(), threading.Event()
    first = asyncio.create_task(store.write(lambda _: (inside.set(), go_on.wait(10))))
    await asyncio.to_thread(inside.wait, 10)
    try:
        yield
        for _ in range(3):
            await asyncio.sleep(0)
    finally:
        go_on.set()
        await first


@contextmanager
def counted_commits(store: Store) -> Iterator[list[int]]:
    seen: list[int] = []
    with before_each_commit(store, lambda: seen.append(1)):
        yield seen


@contextmanager
def before_each_commit(store: Store, hear: Callable[[], object]) -> Iterator[None]:
    dialect = store.database.writing.dialect
    commit = dialect.do_commit

    def heard_commit(connection) -> None:
        hear()
        commit(connection)

    dialect.do_commit = heard_commit
    try:
        yield
    finally:
        dialect.do_commit = commit


def asked(store: Store, *bodies) -> list[asyncio.Task]:
    return [asyncio.create_task(store.write(body)) for body in bodies]


async def test_writes_that_wait_together_share_a_commit(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(writer, "LONGEST_S", 10.0)
    with counted_commits(store) as commits:
        async with held_back(store):
            tasks = asked(store, *[lambda conn, n=n: a_record(conn) or n for n in range(40)])
        assert [await task for task in tasks] == list(range(40))
    assert len(commits) == 1
    assert await store.read(count) == 40


async def test_a_group_has_a_most_and_an_end(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(writer, "LONGEST_S", 10.0)
    monkeypatch.setattr(writer, "MOST_TOGETHER", 5)
    with counted_commits(store) as commits:
        async with held_back(store):
            tasks = asked(store, *[a_record] * 20)
        await asyncio.wait(tasks)
    assert len(commits) == 5
    monkeypatch.setattr(writer, "LONGEST_S", 0.0)
    with counted_commits(store) as commits:
        async with held_back(store):
            tasks = asked(store, *[a_record] * 3)
        await asyncio.wait(tasks)
    assert len(commits) == 4
    assert await store.read(count) == 23


async def test_one_that_raises_takes_back_its_own_work_alone(store: Store) -> None:
    def broken(conn):
        a_record(conn)
        raise NotFound(what="thing", id="x")

    # The second time PostgreSQL is warned.
    for times in (1, 2):
        async with held_back(store):
            tasks = asked(store, a_record, broken, a_record, broken, broken, a_record)
        await asyncio.wait(tasks)
        assert [task.exception() is None for task in tasks] == [True, False, True, False, False, True]
        assert await store.read(count) == 3 * times


async def test_one_the_database_refuses_gets_its_own_error_and_harms_nobody(store: Store) -> None:
    def refused(conn):
        a_record(conn)
        conn.execute(text("INSERT INTO nowhere VALUES (1)"))

    for times in (1, 2):
        async with held_back(store):
            tasks = asked(store, a_record, refused, a_record)
        await asyncio.wait(tasks)
        assert "nowhere" in str(tasks[1].exception())
        assert await store.read(count) == 2 * times


async def test_the_commit_that_fails_fails_for_the_guilty_one_alone(store: Store) -> None:
    await store.write(lambda conn: conn.execute(text("CREATE TABLE parent (id INTEGER PRIMARY KEY)")))
    child = "CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)"
    await store.write(lambda conn: conn.execute(text(child)))

    def orphan(conn):
        conn.execute(text("INSERT INTO child VALUES (1)"))

    async with held_back(store):
        tasks = asked(store, a_record, orphan, a_record)
    await asyncio.wait(tasks)
    assert isinstance(tasks[1].exception(), DBAPIError)
    assert (tasks[0].exception(), tasks[2].exception()) == (None, None)
    assert await store.read(count) == 2


async def test_nobody_is_answered_before_the_commit_not_even_who_raised(store: Store) -> None:
    committing, go_on = threading.Event(), threading.Event()
    may_block = threading.Event()

    def wait_there() -> None:
        if may_block.is_set():
            committing.set()
            assert go_on.wait(10)

    def broken(_):
        raise NotFound(what="thing", id="x")

    with before_each_commit(store, wait_there):
        inside, come_out = threading.Event(), threading.Event()
        tasks = asked(store, lambda _: (inside.set(), come_out.wait(10)), a_record, broken, a_record)
        await asyncio.to_thread(inside.wait, 10)
        may_block.set()
        come_out.set()
        try:
            await asyncio.to_thread(committing.wait, 10)
            assert not any(task.done() for task in tasks)
        finally:
            go_on.set()
        await asyncio.wait(tasks)
    assert await store.read(count) == 2


async def test_each_of_a_group_announces_for_itself_and_one_that_raised_nothing(store: Store) -> None:
    heard: list[frozenset[str]] = []
    store.on_commit(heard.append)

    def broken(conn):
        a_record(conn, "sbx_lost")
        raise NotFound(what="thing", id="x")

    async with held_back(store):
        tasks = asked(
            store, lambda conn: a_record(conn, "sbx_a"), broken, count, lambda conn: a_record(conn, "sbx_b")
        )
    await asyncio.wait(tasks)
    assert heard == [frozenset({"sbx_a"}), frozenset({"sbx_b"})]


async def test_later_ones_see_what_earlier_ones_of_the_group_did_and_not_what_was_taken_back(
    store: Store,
) -> None:
    def broken(conn):
        a_record(conn)
        raise NotFound(what="thing", id="x")

    async with held_back(store):
        tasks = asked(store, count, a_record, count, broken, count, a_record, count)
    await asyncio.wait(tasks)
    assert [tasks[n].result() for n in (0, 2, 4, 6)] == [0, 1, 1, 2]


async def test_what_is_asked_before_the_end_is_done_although_it_shares_the_last_commit(store: Store) -> None:
    async with held_back(store):
        tasks = asked(store, a_record, a_record)
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
    await closing
    assert [await task for task in tasks] == [None, None]


async def test_a_body_that_goes_on_after_the_database_gave_up_is_not_called_done(store: Store) -> None:
    words = "ROLLBACK" if store.database.kind == "sqlite" else "INSERT INTO nowhere VALUES (1)"

    def swallows(conn):
        a_record(conn)
        try:
            conn.connection.driver_connection.execute(words)
        except Exception:
            return

    for _ in range(2):
        async with held_back(store):
            tasks = asked(store, a_record, swallows, a_record)
        await asyncio.wait(tasks)
        assert isinstance(tasks[1].exception(), Broken)
        assert (tasks[0].exception(), tasks[2].exception()) == (None, None)
    assert await store.read(count) == 4


async def test_a_connection_lost_in_the_middle_is_replaced_and_all_are_done_once(postgres_url: str) -> None:
    store = open_store(fresh_database(postgres_url, "cut"))
    tries: list[int] = []

    def cut(conn):
        a_record(conn)
        tries.append(1)
        if len(tries) == 1:
            conn.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    async with held_back(store):
        tasks = asked(store, a_record, cut, a_record)
    await asyncio.wait(tasks)
    assert [task.exception() for task in tasks] == [None, None, None]
    assert await store.read(count) == 3
    await store.close()
