"""Jobs in both databases: fenced steps, pages, the queue, pruning, and whose their events are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from sqlalchemy import Connection

from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import Conflict
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.store.engine import Store, open_store
from sandboxer.work.execute.submission import Submission, to_json
from sandboxer.work.jobs import records
from sandboxer.work.jobs.records import Job, Signal, State
from sandboxer.work.jobs.repository import JobRepository, Step
from sandboxer.work.retention import kept

light = records.light
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, **changes: object) -> Job:
    made = Job(
        id=f"job_{number:026d}",
        version=0,
        account="a",
        created_by="k",
        is_owner=False,
        state=State.QUEUED,
        reason="queued",
        language="python",
        submission=to_json(Submission(code="\x00\ud800", language="python", stdin=b"\xff")),
        webhook_url=None,
        sandbox_id=None,
        compile_process=None,
        run_process=None,
        sats=0,
        problem=None,
        created_at=NOW + timedelta(seconds=number),
        not_before=None,
        started_at=None,
        deadline=None,
        ended_at=None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = open_store(database_url)
    yield opened
    await opened.close()


async def test_a_job_is_kept_moved_once_listed_and_pruned(store: Store) -> None:
    made = [job(number, size_bytes=10) for number in range(3)]
    for one in made:
        await store.write(lambda conn, one=one: records.rows.insert(conn, one))  # type: ignore[misc]
    assert await store.read(lambda conn: records.rows.load(conn, made[0].id)) == made[0]
    assert [w.id for w in await store.read(lambda conn: records.waiting(conn, 2, per_account=9))] == [
        made[0].id,
        made[1].id,
    ]
    assert await store.read(lambda conn: records.queue(conn, "a")) == records.Queue(3, 30)
    assert await store.read(lambda conn: records.queue(conn, "b")) == records.Queue(0, 0)
    assert await store.read(lambda conn: records.queue(conn)) == records.Queue(3, 30)
    done = replace(made[0], version=1, state=State.FINISHED, ended_at=NOW)
    assert await store.write(lambda conn: records.rows.replace(conn, made[0], done))
    assert not await store.write(lambda conn: records.rows.replace(conn, made[0], done))
    await store.write(lambda conn: records.keep_outcome(conn, made[0].id, b'{"x": 1}'))
    assert await store.read(lambda conn: records.result_of(conn, made[0].id)) == {"x": 1}
    first = await store.read(
        lambda conn: light.page(conn, light.matching(account="a", state=State.QUEUED), cursor=None, limit=1)
    )
    assert [one.id for one in first.records] == [made[2].id]
    rest = await store.read(
        lambda conn: light.page(
            conn, light.matching(account="a", state=None), cursor=first.next_cursor, limit=9
        )
    )
    assert [one.id for one in rest.records] == [made[1].id, made[0].id]
    assert await store.read(lambda conn: records.rows.owners(conn, [made[1].id, "sbx_1"])) == {
        made[1].id: "a"
    }
    jobs, _, _ = kept(jobs_for=timedelta(), records_for=timedelta())
    assert await store.write(lambda conn: jobs.prune(conn, NOW + timedelta(days=1), 10)) == 1
    assert await store.read(lambda conn: records.rows.load(conn, made[0].id)) is None


async def test_a_long_queue_of_one_account_hides_nobody_else_s(store: Store) -> None:
    for number in range(50):
        await store.write(lambda conn, n=number: records.rows.insert(conn, job(n, account="greedy")))  # type: ignore[misc]
    late = job(60, account="modest")
    await store.write(lambda conn: records.rows.insert(conn, late))
    found = await store.read(lambda conn: records.waiting(conn, 10, per_account=4))
    assert [one.root for one in found] == ["greedy"] * 4 + ["modest"]


async def test_lists_do_not_carry_what_jobs_were_given(store: Store) -> None:
    await store.write(lambda conn: records.rows.insert(conn, job(1)))
    query = light.matching(account="a")
    page = await store.read(lambda conn: light.page(conn, query, cursor=None, limit=5))
    assert [one.submission for one in page.records] == [None]
    assert [
        one.submission for one in await store.read(lambda conn: records.in_state(conn, State.QUEUED))
    ] == [None]


async def test_what_a_job_was_given_goes_with_its_end_though_who_ends_it_never_read_it(store: Store) -> None:
    repository = JobRepository(store, SystemClock(), cast(Webhooks, None))
    await store.write(lambda conn: repository.add(conn, job(1), also=None, now=NOW))
    seen = await repository.glance(job(1).id)
    assert seen is not None
    started = await repository.take(seen, Step(signal=Signal.STARTED, reason="started"))
    running = await repository.find(started.id)
    assert running is not None
    assert running.submission == job(1).submission
    await repository.take(started, Step(signal=Signal.CANCEL, reason="cancelled"))
    ended = await repository.find(started.id)
    assert ended is not None
    assert (ended.state, ended.submission) == (State.CANCELLED, None)
    with pytest.raises(Conflict):
        await repository.take(started, Step(signal=Signal.CANCEL, reason="cancelled"))


async def test_what_jobs_printed_is_kept_up_to_a_bound_the_newest_first(store: Store) -> None:
    def write(conn: Connection) -> int:
        for number in range(4):
            ended = job(number, account="a" if number else "other", state=State.FINISHED, ended_at=NOW)
            records.rows.insert(conn, ended)
            records.keep_outcome(conn, ended.id, b'{"x": 1}' + b" " * 992)
        return records.drop_old_results(conn, "a", keep_bytes=2000)

    assert await store.write(write) == 1
    kept = [
        await store.read(lambda conn, n=number: records.result_of(conn, job(n).id))  # type: ignore[misc]
        for number in range(4)
    ]
    assert [one is not None for one in kept] == [True, False, True, True]
    dropped = await store.read(lambda conn: records.rows.load(conn, job(1).id))
    assert dropped is not None
    assert dropped.problem == records.OUTPUT_DROPPED
