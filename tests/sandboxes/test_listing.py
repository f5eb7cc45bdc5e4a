"""Lists: your own, newest first, by label and state, page by page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, inspection, pause
from tests.support.clock import ManualClock
from tests.support.sandboxes import ALICE, BOB, OWNER, OpenPlatform


async def test_pages_hold_everything_once_newest_first(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        made = []
        for number in range(7):
            # Some share a moment: the id decides then.
            clock.advance(timedelta(seconds=number % 2))
            made.append((await creation.create(platform.sandboxes, CreateRequest(), ALICE)).id)
        seen: list[str] = []
        cursor = None
        while True:
            page = await inspection.list_sandboxes(platform.sandboxes, ALICE, limit=3, cursor=cursor)
            seen += [sandbox.id for sandbox in page.records]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(seen) == sorted(made)
        assert seen[0] in made[-2:]


async def test_labels_and_states_narrow_the_list(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        a = await creation.create(
            platform.sandboxes, CreateRequest(labels={"team": "a", "env": "dev"}), ALICE
        )
        b = await creation.create(
            platform.sandboxes, CreateRequest(labels={"team": "b", "env": "dev"}), ALICE
        )
        await pause.freeze(platform.sandboxes, b.id, ALICE)

        async def ids(**filters: object) -> set[str]:
            page = await inspection.list_sandboxes(platform.sandboxes, ALICE, **filters)  # type: ignore[arg-type]
            return {sandbox.id for sandbox in page.records}

        assert await ids(labels={"env": "dev"}) == {a.id, b.id}
        assert await ids(labels={"env": "dev", "team": "a"}) == {a.id}
        assert await ids(labels={"team": "c"}) == set()
        assert await ids(states=(State.FROZEN,)) == {b.id}
        assert await ids(states=(State.READY,), labels={"team": "b"}) == set()


async def test_everyone_sees_their_own_and_the_owner_sees_all(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        a = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        b = await creation.create(platform.sandboxes, CreateRequest(), BOB)
        assert [s.id for s in (await inspection.list_sandboxes(platform.sandboxes, BOB)).records] == [b.id]
        assert {s.id for s in (await inspection.list_sandboxes(platform.sandboxes, OWNER)).records} == {
            a.id,
            b.id,
        }


@pytest.mark.parametrize(
    "cursor", ["", "x", "!!", "bnVsbA", "WzEsMl0", "eyJhIjoxfQ", "WyIyMDI2LTAxLTAxIiwieCJd", "A" * 1000]
)
async def test_a_cursor_that_is_not_ours_is_refused(open_one: OpenPlatform, cursor: str) -> None:
    async with open_one() as platform:
        with pytest.raises(InvalidRequest, match="cursor"):
            await inspection.list_sandboxes(platform.sandboxes, ALICE, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 501])
async def test_a_limit_beyond_the_bounds_is_refused(open_one: OpenPlatform, limit: int) -> None:
    async with open_one() as platform:
        with pytest.raises(InvalidRequest):
            await inspection.list_sandboxes(platform.sandboxes, ALICE, limit=limit)
