"""The repository that answers on every request, and how fast it hears of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from sandboxer.accounts import records
from sandboxer.accounts.authority import ALL_SCOPES, CACHED_FOR, AuthorityRepository, demand, demand_active
from sandboxer.accounts.records import Change, Kind
from sandboxer.accounts.revocation import revoke
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden
from sandboxer.store.engine import Store
from sandboxer.wire.operations.declaration import Scope
from tests.support.accounts import NOW, child_of, rich


class StillClock:
    def __init__(self) -> None:
        self.moment = NOW

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, delay: timedelta) -> None:
        self.moment += delay


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def repository(store: Store, clock: StillClock) -> AsyncIterator[AuthorityRepository]:
    made = AuthorityRepository(store, clock)
    yield made
    made.close()


def caller(account: str, *, is_owner: bool = False) -> Caller:
    return Caller(public_key=f"pk-{account}", account=account, is_owner=is_owner)


async def test_an_account_seen_first_gets_its_record_and_bucket(
    repository: AuthorityRepository, store: Store
) -> None:
    authority = await repository.of(caller("search-team"))
    assert authority.scopes == ALL_SCOPES
    assert authority.ancestry == ("search-team",)
    assert await store.read(lambda conn: records.has_bucket(conn, "search-team"))
    owner = await repository.of(caller("owner", is_owner=True))
    assert owner.account.kind is Kind.OWNER
    assert owner.is_root_owner


async def test_a_revocation_is_heard_of_by_the_next_request_also_below(
    repository: AuthorityRepository, store: Store
) -> None:
    def family(conn):
        a = child_of(conn, rich(conn)).account
        return a, child_of(conn, a, budget_sats=1, depth=0).account

    a, b = await store.write(family)
    for account in (a, b):
        demand(await repository.of(caller(account)), Scope.EXEC, now=NOW)
    await store.write(lambda conn: revoke(conn, a, actor="t", reason="x", now=NOW))
    for account in (a, b):
        with pytest.raises(Forbidden):
            demand_active(await repository.of(caller(account)), now=NOW)


async def test_a_suspended_root_is_heard_of_below(repository: AuthorityRepository, store: Store) -> None:
    child = await store.write(lambda conn: child_of(conn, rich(conn)).account)
    demand_active(await repository.of(caller(child)), now=NOW)
    await store.write(
        lambda conn: records.change_status(
            conn, "acc_root", Change.SUSPEND, actor="op", reason="abuse", now=NOW
        )
    )
    with pytest.raises(Forbidden):
        demand_active(await repository.of(caller(child)), now=NOW)


async def test_an_answer_from_memory_is_used_for_a_while_and_not_longer(
    repository: AuthorityRepository, store: Store, clock: StillClock
) -> None:
    await store.write(rich)
    first = await repository.of(caller("acc_root"))
    assert await repository.of(caller("acc_root")) is first
    clock.moment += CACHED_FOR
    assert await repository.of(caller("acc_root")) is not first


async def test_a_change_during_a_look_is_not_forgotten_after_it(
    repository: AuthorityRepository, store: Store
) -> None:
    child = await store.write(lambda conn: child_of(conn, rich(conn)).account)
    for turn in range(20):
        async with asyncio.TaskGroup() as group:
            group.create_task(repository.of(caller(child)))
            change = Change.SUSPEND if turn % 2 == 0 else Change.REINSTATE
            group.create_task(
                store.write(
                    lambda conn, change=change: records.change_status(
                        conn, "acc_root", change, actor="op", reason="x", now=NOW
                    )
                )
            )
        refused = (await repository.of(caller(child))).refused_why is not None
        assert refused is (change is Change.SUSPEND)


async def test_a_tier_counts_for_its_children_together_and_only_while_it_lasts(
    repository: AuthorityRepository, store: Store
) -> None:
    until = NOW + timedelta(days=1)

    def entitled(conn):
        child = child_of(conn, rich(conn)).account
        records.entitle(conn, "acc_root", tier=3, until=until, actor="op", reason="paid", now=NOW)
        return child

    child = await store.write(entitled)
    authority = await repository.of(caller(child))
    sender = authority.sender(caller(child), now=NOW)
    assert (sender.root, sender.tier, sender.root_tier) == ("acc_root", None, 3)
    assert authority.sender(caller(child), now=until).root_tier is None
