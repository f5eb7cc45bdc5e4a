from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sandboxer.kernel.errors import IdempotencyConflict
from sandboxer.store import kept_answers
from sandboxer.store.engine import Store
from sandboxer.store.idempotency import (
    IN_FLIGHT_FOR,
    KEPT_FOR,
    Dropped,
    Fresh,
    InFlight,
    Replay,
    Spent,
    abandon,
    abandon_all_in_flight,
    begin,
    bind,
    finish,
    prune,
    spend,
)
from sandboxer.store.kept_answers import AnswerPolicy, allowed, held_bytes, keep_within

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


async def test_the_answers_of_one_owner_take_no_more_than_their_bound_and_the_oldest_go(store: Store) -> None:
    policy = AnswerPolicy(bytes_per_owner=300_000, bytes_in_all=10**9)
    for number in range(5):
        await _kept(store, f"k{number}", owner="acc", size=100_000, at=number, policy=policy)
    await _kept(store, "other", owner="beside", size=100_000, at=0, policy=policy)
    found = [await begun(store, key=f"k{number}", scope="acc POST /v1/execute") for number in range(5)]
    assert [type(one) for one in found] == [Dropped, Dropped, Replay, Replay, Replay]
    assert isinstance(await begun(store, key="other", scope="beside POST /v1/execute"), Replay)
    assert await store.read(held_bytes) == {"acc": 300_000, "beside": 100_000}


async def test_a_dropped_answer_says_what_was_made_and_is_not_given_to_another_request(store: Store) -> None:
    policy = AnswerPolicy(bytes_per_owner=1, bytes_in_all=10**9)
    await _kept(store, "k", owner="acc", size=100_000, at=0, policy=policy, made="sbx_1")
    scope = "acc POST /v1/execute"
    assert await begun(store, key="k", scope=scope) == Dropped(at=NOW, made="sbx_1")
    with pytest.raises(IdempotencyConflict):
        await begun(store, key="k", scope=scope, request_hash="other")


async def test_many_small_answers_are_weighed_too(store: Store) -> None:
    policy = AnswerPolicy(bytes_per_owner=3_000, bytes_in_all=10**9)
    for number in range(5):
        await _kept(store, f"k{number}", owner="acc", size=1_000, at=number, policy=policy)
    assert await keep_within(store, policy) == 2
    assert await store.read(held_bytes) == {"acc": 3_000}
    assert await keep_within(store, policy) == 0


def test_when_all_are_too_much_those_who_keep_most_keep_less() -> None:
    policy = AnswerPolicy(bytes_per_owner=100, bytes_in_all=150)
    assert allowed({}, policy) == 100
    assert allowed({"a": 40, "b": 100}, policy) == 100
    assert allowed({"a": 400, "b": 30}, policy) == 100
    assert allowed({"a": 100, "b": 100, "c": 10}, policy) == 70
    assert allowed({"a": 60, "b": 60, "c": 60}, policy) == 50


async def _kept(
    store: Store, key: str, *, owner: str, size: int, at: int, policy: AnswerPolicy, made: str | None = None
) -> None:
    scope, now = f"{owner} POST /v1/execute", NOW + timedelta(seconds=at)
    fresh = await begun(store, key=key, scope=scope, now=now)
    assert isinstance(fresh, Fresh)
    if made is not None:
        await store.write(lambda conn: bind(conn, fresh, made))
    answer = {"status": 200, "headers": {}, "body": b"x" * size, "policy": policy}
    assert await store.write(lambda conn: kept_answers.finish(conn, fresh, **answer))
