"""A database that stops answering and says nothing: nobody waits for ever, and nothing is done twice."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

from sandboxer.kernel.errors import FateUnknown, Unavailable
from sandboxer.store.engine import LAST_PATIENCE, READERS, Store, open_store
from sandboxer.store.lock import hold_database
from sandboxer.store.workers import Patience
from tests.faults.clusters import Cluster
from tests.support.store import a_record, count, opened, until

SHORT = Patience(turn_s=0.3, run_s=0.3, end_s=1.0)
# One job's last patience, the threads' end, and a busy machine.
LAST_TOGETHER_S = LAST_PATIENCE.turn_s + LAST_PATIENCE.run_s + 2 * LAST_PATIENCE.end_s + 1.5


async def paused_soon(cluster: Cluster, patience: Patience = SHORT) -> Store:
    store = open_store(cluster.url, patience=patience)
    await store.write(a_record)
    assert await store.read(count) == 1
    return store


async def test_who_asks_a_paused_database_is_told_to_retry_and_later_all_goes_on(cluster: Cluster) -> None:
    store = await paused_soon(cluster)
    cluster.pause()
    began = time.monotonic()
    asked = [store.write(a_record) for _ in range(5)] + [store.read(count) for _ in range(5)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert time.monotonic() - began < 4
    assert all(isinstance(result, Unavailable) for result in results), results
    assert all("Retry" in str(r.facts.get("hint", type(r).next_step)) for r in results)  # type: ignore[union-attr]
    cluster.go_on()
    await until(lambda: store.write(lambda conn: a_record(conn, "sbx_after")))
    await until(lambda: store.read(count))
    await store.close()


async def test_what_had_not_begun_when_the_database_stopped_is_never_done(cluster: Cluster) -> None:
    store = await paused_soon(cluster)
    cluster.pause()
    hanging = asyncio.create_task(store.write(count))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="nothing of this was done"):
        await store.write(a_record)
    with pytest.raises(Unavailable):
        await hanging
    cluster.go_on()
    await until(lambda: store.write(count))
    assert await store.read(count) == 1
    await store.close()


async def test_a_commit_without_an_answer_is_said_to_be_unknown_and_is_decided_before_the_next_write(
    cluster: Cluster,
) -> None:
    with hold_database(cluster.url) as claim:
        store = open_store(cluster.url, claim=claim, patience=SHORT)
        await until(lambda: store.write(claim.begin))

        def pausing(conn):
            a_record(conn)
            cluster.pause()

        with pytest.raises(FateUnknown):
            await store.write(pausing)
        cluster.go_on()
        seen: list[int] = []
        await until(lambda: store.write(lambda conn: seen.append(count(conn))))
        for _ in range(5):
            assert await store.read(count) == seen[-1], "what was decided has changed"
        await store.close()


@pytest.mark.alone
async def test_requests_are_refused_at_once_while_the_watch_finds_no_database(cluster: Cluster) -> None:
    with hold_database(cluster.url) as claim:
        store = await opened(cluster.url, claim, Patience(turn_s=1, run_s=1, end_s=1))
        watching = asyncio.create_task(store.watch())
        await until(lambda: store.read(count))
        cluster.pause()
        deadline = time.monotonic() + 30
        while not (store._writing.is_away and store._reading.is_away):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        began = time.monotonic()
        for asked in (store.write(a_record), store.read(count)):
            with pytest.raises(Unavailable, match="does not answer"):
                await asked
        assert time.monotonic() - began < 0.5
        cluster.go_on()
        await until(lambda: store.write(a_record))
        await until(lambda: store.read(count))
        watching.cancel()
        await store.close()


async def test_a_store_whose_database_is_paused_closes_all_the_same(cluster: Cluster) -> None:
    store = await paused_soon(cluster)
    cluster.pause()
    began = time.monotonic()
    await asyncio.gather(*(store.write(a_record) for _ in range(3)), return_exceptions=True)
    store.hurry()
    await store.close()
    assert time.monotonic() - began < 8
    cluster.go_on()


async def test_a_server_that_ends_waits_once_for_a_database_that_hangs(cluster: Cluster) -> None:
    """All threads hang, the watch's question too; then one after the other has a last thing to write."""
    with hold_database(cluster.url) as claim:
        store = await opened(cluster.url, claim, Patience(turn_s=30, run_s=30))
        watching = asyncio.create_task(store.watch())
        await until(lambda: store.read(count))
        cluster.pause()
        asked = [store.write(a_record), *(store.read(count) for _ in range(READERS))]
        hanging = asyncio.gather(*asked, return_exceptions=True)
        await asyncio.sleep(0)
        began = time.monotonic()
        store.hurry()
        for _ in range(5):
            with pytest.raises(Unavailable):
                await store.write(a_record)
        watching.cancel()
        await asyncio.wait([watching])
        await store.close()
        assert time.monotonic() - began < LAST_TOGETHER_S
        assert all(isinstance(result, Unavailable) for result in await hanging)
        cluster.go_on()


async def test_a_sqlite_that_another_program_keeps_locked_holds_nobody_for_long(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db", patience=Patience(turn_s=1, run_s=1, end_s=4))
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    results = await asyncio.gather(*(store.write(a_record) for _ in range(20)), return_exceptions=True)
    assert time.monotonic() - began < 7
    assert all(isinstance(result, Unavailable) for result in results), results
    other.rollback()
    other.close()
    await until(lambda: store.write(a_record))
    assert await store.read(count) == 1
    await store.close()
