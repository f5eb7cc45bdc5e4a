from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sandboxer.accounts.entitlements import (
    Entitlement,
    Living,
    Move,
    TierResources,
    free_ones,
    moves,
    would_be_free,
)
from sandboxer.accounts.limits import free_slots
from sandboxer.money.pricing import Size
from tests.support.accounts import NOW, later

SMALL = Size(vcpu_thousandths=1000, memory_mb=1024, disk_mb=1024)
UNTIL = later(3600)


def living(id: str, since: float = 0, *, size: Size = SMALL, is_free: bool = False) -> Living:
    return Living(id=id, since=later(since), size=size, is_free=is_free)


def tier(number: int) -> Entitlement:
    return Entitlement(tier=number, until=UNTIL)


def test_the_oldest_fill_the_slots_and_the_rest_pays() -> None:
    three = [living("c", 2), living("a", 0), living("b", 1)]
    assert free_ones(three, tier(5), now=NOW) == {"a", "b"}
    assert free_ones(three, None, now=NOW) == frozenset()


def test_a_sandbox_too_large_for_the_tier_pays_and_takes_no_slot() -> None:
    huge = Size(vcpu_thousandths=64_000, memory_mb=1024, disk_mb=1024)
    assert free_ones([living("huge", 0, size=huge), living("a", 1)], tier(1), now=NOW) == {"a"}
    assert not would_be_free([], huge, tier(1), now=NOW)


def test_when_the_entitlement_ends_all_its_sandboxes_move_to_the_bucket() -> None:
    two = [living("a", is_free=True), living("b", is_free=True)]
    assert moves(two, tier(5), now=UNTIL - timedelta(microseconds=1)) == ()
    assert moves(two, tier(5), now=UNTIL) == (Move(id="a", to_free=False), Move(id="b", to_free=False))


def test_buying_a_tier_frees_what_runs_and_a_smaller_one_makes_some_pay() -> None:
    assert moves([living("a")], tier(1), now=NOW) == (Move(id="a", to_free=True),)
    two = [living("a", 0, is_free=True), living("b", 1, is_free=True)]
    assert moves(two, tier(1), now=NOW) == (Move(id="b", to_free=False),)


def test_one_more_is_free_only_while_a_slot_is() -> None:
    assert would_be_free([], SMALL, tier(1), now=NOW)
    assert not would_be_free([living("a", is_free=True)], SMALL, tier(1), now=NOW)
    assert not would_be_free([], SMALL, None, now=NOW)


sizes = st.builds(
    Size,
    vcpu_thousandths=st.integers(100, 6000),
    memory_mb=st.integers(64, 9000),
    disk_mb=st.integers(64, 40000),
)
many = st.lists(st.tuples(st.integers(0, 50), sizes, st.booleans()), max_size=15).map(
    lambda rows: [
        living(f"s{n}", since, size=size, is_free=free) for n, (since, size, free) in enumerate(rows)
    ]
)


@given(many, st.integers(1, 32))
def test_the_free_never_exceed_slots_or_pool(ones: list[Living], number: int) -> None:
    free = free_ones(ones, tier(number), now=NOW)
    pool = TierResources().pool(number)
    chosen = [one.size for one in ones if one.id in free]
    assert len(free) <= free_slots(number)
    assert sum(size.memory_mb for size in chosen) <= pool.memory_mb
    assert sum(size.vcpu_thousandths for size in chosen) <= pool.vcpu_thousandths
    assert sum(size.disk_mb for size in chosen) <= pool.disk_mb


@given(many, st.integers(1, 32), sizes, st.data())
def test_who_is_free_stays_free_whatever_comes_or_goes_beside_it(
    ones: list[Living], number: int, size: Size, data: st.DataObject
) -> None:
    free = free_ones(ones, tier(number), now=NOW)
    settled = [Living(id=o.id, since=o.since, size=o.size, is_free=o.id in free) for o in ones]
    assert moves(settled, tier(number), now=NOW) == ()
    leaving = data.draw(st.sets(st.sampled_from([o.id for o in ones]))) if ones else set()
    after = [o for o in settled if o.id not in leaving] + [living("new", 99, size=size)]
    assert not [move for move in moves(after, tier(number), now=NOW) if not move.to_free]
