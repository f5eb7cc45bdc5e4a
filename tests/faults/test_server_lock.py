"""One server per database, through restarts of the database and whatever becomes of locks."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest
from sqlalchemy import text

from sandboxer.kernel.errors import Conflict, Superseded, Unavailable
from sandboxer.store.claim import Claim
from sandboxer.store.engine import open_store
from sandboxer.store.lock import hold_database
from tests.faults.clusters import Cluster
from tests.support.store import a_record, count, opened, until


async def test_the_servers_lock_is_held_again_after_the_database_was_killed_and_started(
    cluster: Cluster,
) -> None:
    with hold_database(cluster.url) as claim:
        store = await opened(cluster.url, claim)
        watching = asyncio.create_task(store.watch())
        cluster.kill()
        cluster.start()
        # Nobody asks for anything: the watch alone must take it again.
        await until_held(cluster.url)
        with pytest.raises(Conflict, match="this database"), hold_database(cluster.url):
            pass
        await until(lambda: store.write(a_record))
        watching.cancel()
        await store.close()


async def until_held(url: str) -> None:
    deadline = time.monotonic() + 15
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    while True:
        with psycopg.connect(url, autocommit=True) as conn:
            if (conn.execute(query).fetchone() or (0,))[0]:
                return
        assert time.monotonic() < deadline, "the lock was not taken again"
        await asyncio.sleep(0.05)


async def test_a_server_whose_database_was_taken_over_while_it_was_away_never_writes_again(
    cluster: Cluster,
) -> None:
    """By a second one that started between the restart and the first one's next write, and is gone again."""
    reported = []
    with hold_database(cluster.url) as claim:
        first = await opened(cluster.url, claim)
        claim.on_superseded(lambda: reported.append(True))
        await first.write(a_record)
        cluster.kill()
        cluster.start()
        with hold_database(cluster.url) as second_claim:
            second = await opened(cluster.url, second_claim)
            # While the second serves, the first gets neither the lock nor a word in.
            with pytest.raises(Unavailable):
                await first.write(a_record)
            await second.write(a_record)
            await second.close()
        with pytest.raises(Superseded):
            await first.write(a_record)
        assert reported == [True]
        assert claim.is_superseded
        with pytest.raises(Superseded):
            await first.write(a_record)
        assert await first.read(count) == 2
        await first.close()


async def test_the_fence_stands_in_the_transaction_itself_though_every_lock_was_got_around(
    database_url: str,
) -> None:
    """As after a deleted lock file, or behind a pooler that gives a session's lock to somebody else."""
    with hold_database(database_url) as claim:
        first = await opened(database_url, claim)
        await first.write(a_record)
        # No claim: nobody asks this one for a lock.
        second = open_store(database_url)
        await second.write(Claim().begin)
        for _ in range(2):
            with pytest.raises(Superseded):
                await first.write(a_record)
        await second.write(a_record)
        assert await second.read(count) == 2
        await second.close()
        await first.close()


async def test_of_writes_that_wait_together_none_passes_the_fence(database_url: str) -> None:
    with hold_database(database_url) as claim:
        first = await opened(database_url, claim)
        second = open_store(database_url)
        await second.write(Claim().begin)
        results = await asyncio.gather(*(first.write(a_record) for _ in range(20)), return_exceptions=True)
        assert {type(result) for result in results} == {Superseded}
        assert await second.read(count) == 0
        await second.close()
        await first.close()


async def test_a_lost_session_of_ours_that_lives_on_at_the_server_is_ended_by_us(cluster: Cluster) -> None:
    """Half open: our end is gone, and the server, which was told nothing, still holds the lock for it."""
    with hold_database(cluster.url) as claim:
        store = await opened(cluster.url, claim)
        left = psycopg.connect(cluster.url, autocommit=True, application_name=claim.name)
        with psycopg.connect(cluster.url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = %s AND pid <> %s",
                (claim.name, left.info.backend_pid),
            )
        deadline = time.monotonic() + 5
        while not left.execute("SELECT pg_try_advisory_lock(%s)", (lock_number(),)).fetchone()[0]:
            assert time.monotonic() < deadline
        await until(lambda: store.write(a_record))
        with pytest.raises(psycopg.Error):
            left.execute("SELECT 1")
        assert await store.read(lambda conn: conn.execute(text("SELECT count(*) FROM events")).scalar()) == 1
        await store.close()


def lock_number() -> int:
    return int.from_bytes(b"sandboxs")
