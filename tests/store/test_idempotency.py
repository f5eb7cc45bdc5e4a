from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sandboxer.kernel.errors import IdempotencyConflict
from sandboxer.store.engine import Store
from sandboxer.store.idempotency import (
    IN_FLIGHT_FOR,
    KEPT_FOR,
    Fresh,
    InFlight,
    Replay,
    Spent,
    abandon,
    abandon_all_in_flight,
    begin,
    finish,
    prune,
    spend,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


async def begun(store: Store, *, key="k", scope="acc:POST /v1/sandboxes", request_hash="h", now=NOW):
    return await store.write(
        lambda conn: begin(conn, scope=scope, key=key, request_hash=request_hash, now=now)
    )


async def finished(store: Store, fresh: Fresh, body: bytes = b'{"id": 1}\x00\xff') -> bool:
    return await store.write(
        lambda conn: finish(conn, fresh, status=201, headers={"location": "/v1/x"}, body=body)
    )


async def test_the_same_request_gets_the_first_answer(store: Store) -> None:
    fresh = await begun(store)
    assert isinstance(fresh, Fresh)
    assert await finished(store, fresh)
    assert await begun(store) == Replay(status=201, headers={"location": "/v1/x"}, body=b'{"id": 1}\x00\xff')


async def test_another_request_under_the_same_key_is_a_conflict_in_flight_and_afterwards(
    store: Store,
) -> None:
    fresh = await begun(store)
    with pytest.raises(IdempotencyConflict):
        await begun(store, request_hash="other")
    await finished(store, fresh)
    with pytest.raises(IdempotencyConflict):
        await begun(store, request_hash="other")


async def test_a_repetition_while_the_first_is_at_work_is_told_to_come_back(store: Store) -> None:
    await begun(store)
    later = await begun(store, now=NOW + timedelta(seconds=3))
    assert later == InFlight(since=NOW, retry_after_s=1)


async def test_of_many_at_once_exactly_one_does_the_work(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(begun(store)) for _ in range(20)]
    assert sum(isinstance(task.result(), Fresh) for task in tasks) == 1


async def test_an_abandoned_key_may_be_tried_again(store: Store) -> None:
    fresh = await begun(store)
    assert await store.write(lambda conn: abandon(conn, fresh))
    assert isinstance(await begun(store, request_hash="other"), Fresh)


async def test_a_spent_key_keeps_no_answer_and_is_not_done_twice(store: Store) -> None:
    fresh = await begun(store)
    assert await store.write(lambda conn: spend(conn, fresh))
    assert await begun(store, now=NOW + timedelta(hours=1)) == Spent(at=NOW)


async def test_one_who_died_at_work_is_given_up_and_cannot_overwrite_his_successor(store: Store) -> None:
    first = await begun(store)
    assert isinstance(await begun(store, now=NOW + IN_FLIGHT_FOR - timedelta(seconds=1)), InFlight)
    second = await begun(store, now=NOW + IN_FLIGHT_FOR)
    assert isinstance(second, Fresh)
    assert not await finished(store, first, b"late")
    assert not await store.write(lambda conn: abandon(conn, first))
    assert await finished(store, second, b"mine")
    assert (await begun(store, now=NOW + IN_FLIGHT_FOR)).body == b"mine"


async def test_a_start_gives_up_what_the_last_process_had_begun_but_keeps_answers(store: Store) -> None:
    done = await begun(store, key="done")
    await finished(store, done)
    await begun(store, key="open")
    assert await store.write(abandon_all_in_flight) == 1
    assert isinstance(await begun(store, key="open"), Fresh)
    assert isinstance(await begun(store, key="done"), Replay)


async def test_answers_are_kept_for_a_day_and_then_pruned(store: Store) -> None:
    await finished(store, await begun(store))
    assert isinstance(await begun(store, now=NOW + KEPT_FOR - timedelta(seconds=1)), Replay)
    assert await store.write(lambda conn: prune(conn, now=NOW + KEPT_FOR - timedelta(seconds=1))) == 0
    assert isinstance(await begun(store, request_hash="other", now=NOW + KEPT_FOR), Fresh)
    assert await store.write(lambda conn: prune(conn, now=NOW + 3 * KEPT_FOR)) == 1


async def test_scopes_do_not_share_keys(store: Store) -> None:
    await finished(store, await begun(store, scope="alice"))
    assert isinstance(await begun(store, scope="bob", request_hash="other"), Fresh)
