from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, insert

from sandboxer.accounts import caps, records, revocation
from sandboxer.accounts.caps import Caps, Spent
from sandboxer.accounts.delegation import give
from sandboxer.accounts.sums import rate_by, spent_by
from sandboxer.accounts.use_cases import give_sats
from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.money import segments
from sandboxer.money.amounts import NSATS_PER_SAT
from sandboxer.money.buckets import load_bucket
from sandboxer.money.metering import charge_once, close_meter, open_meter
from sandboxer.money.policy import Use
from sandboxer.money.tables import meter_segments
from tests.support.accounts import NOW, child_of, later, rich

limits = st.none() | st.integers(0, 1000)
any_caps = st.builds(Caps, per_key_sats=limits, per_sandbox_sats=limits, per_day_sats=limits)


def spent(key: int = 0, sandbox: int = 0, today: int = 0) -> Spent:
    return Spent(key=key * NSATS_PER_SAT, sandbox=sandbox * NSATS_PER_SAT, today=today * NSATS_PER_SAT)


@pytest.mark.parametrize("name", ["per_key_sats", "per_sandbox_sats", "per_day_sats"])
def test_a_cap_lets_the_last_sat_through_and_not_the_one_after(name: str) -> None:
    bounds, used = Caps(**{name: 10}), spent(4, 4, 4)
    caps.check(bounds, used, wanted=6)
    with pytest.raises(Forbidden) as caught:
        caps.check(bounds, used, wanted=7)
    assert caught.value.facts["cap"] == name
    assert caught.value.facts["limit_sats"] == 10


def test_a_fraction_of_a_sat_counts() -> None:
    with pytest.raises(Forbidden):
        caps.check(Caps(per_day_sats=10), Spent(today=1), wanted=10)


@given(any_caps, any_caps)
def test_a_childs_caps_are_never_wider_than_its_parents(parent: Caps, wished: Caps) -> None:
    given_ = caps.attenuate(parent, wished)
    for name, limit in caps.as_json(parent).items():
        assert getattr(given_, name) is not None
        assert getattr(given_, name) <= limit
    for name, limit in caps.as_json(wished).items():
        assert getattr(given_, name) <= limit


@given(any_caps, st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_what_is_left_is_the_most_that_passes(bounds: Caps, key: int, sandbox: int, today: int) -> None:
    used = spent(key, sandbox, today)
    rest = caps.left(bounds, used)
    if rest is None:
        caps.check(bounds, used, wanted=10**9)
        return
    if rest:
        caps.check(bounds, used, wanted=rest)
    with pytest.raises(Forbidden):
        caps.check(bounds, used, wanted=rest + 1)


@given(any_caps)
def test_caps_survive_being_written_down(bounds: Caps) -> None:
    assert caps.from_json(caps.as_json(bounds)) == bounds


def test_a_cap_that_is_no_cap_is_refused() -> None:
    for bad in (-1, True, 10**20, "1"):
        with pytest.raises(InvalidRequest):
            Caps(per_day_sats=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        caps.from_json({"per_year_sats": 1})


def test_the_moment_a_running_sandbox_meets_its_cap_is_known_in_advance() -> None:
    # 2 sats a second, 10 sats left.
    assert caps.reached_at(Caps(per_sandbox_sats=10), spent(), rate=2000, now=NOW) == later(5)
    assert caps.reached_at(Caps(per_sandbox_sats=10), spent(sandbox=12), rate=2000, now=NOW) == NOW
    assert caps.reached_at(Caps(), spent(), rate=2000, now=NOW) is None
    assert caps.reached_at(Caps(per_sandbox_sats=10), spent(), rate=0, now=NOW) is None


def test_a_daily_cap_that_midnight_comes_before_is_never_met() -> None:
    seconds_left = int((segments.day_of(NOW) + timedelta(days=1) - NOW).total_seconds())
    late = Caps(per_day_sats=seconds_left + 1)
    assert caps.reached_at(late, spent(), rate=1000, now=NOW) is None
    assert caps.reached_at(late, spent(), rate=1000, account_rate=3000, now=NOW) is not None


def spent_by_key(conn: Connection, owner: str, key: str) -> int:
    return segments.spent(conn, owner, load_bucket(conn, owner).run_to(NOW), key=key, now=NOW)


def test_the_ledger_gives_the_sums_that_caps_count(conn: Connection) -> None:
    # Enough until tomorrow: who is dry is charged no further.
    root = rich(conn, sats=100_000)
    open_meter(conn, root, id="m1", subject="sbx_1", use=Use.RUNNING, rate=1000, now=NOW, key="one")
    open_meter(conn, root, id="m2", subject="sbx_2", use=Use.RUNNING, rate=500, now=NOW, key="two")
    close_meter(conn, "m2", now=later(10))
    every = Caps(per_key_sats=10**6, per_sandbox_sats=10**6, per_day_sats=10**6)
    assert spent_by(conn, root, every, key="one", sandbox="sbx_1", now=later(20)) == spent(20, 20, 25)
    assert spent_by(conn, root, every, key="two", sandbox="sbx_2", now=later(20)) == spent(5, 5, 25)
    # As it was before the second one ended.
    assert spent_by(conn, root, every, key="two", sandbox="sbx_2", now=later(4)) == spent(2, 2, 6)
    tomorrow = segments.day_of(NOW) + timedelta(days=1, seconds=3)
    assert spent_by(conn, root, every, key="one", now=tomorrow).today == 3 * NSATS_PER_SAT
    assert spent_by(conn, root, Caps(), key="one", now=later(20)) == Spent()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6), st.integers(0, 4 * 86_400 * 10**6), st.integers(1, 3 * 86_400 * 10**6)
        ),
        max_size=5,
    )
)
def test_a_time_spread_over_days_costs_what_it_costs_in_one_piece(times: list[tuple[int, int, int]]) -> None:
    for rate, start, length in times:
        began = NOW + timedelta(microseconds=start)
        ended = began + timedelta(microseconds=length)
        days = list(segments.spread(rate, began, ended))
        assert sum(nsats for _, nsats in days) == rate * length
        assert len({day for day, _ in days}) == len(days)
        assert all(day == segments.day_of(day) for day, _ in days)


def test_two_keys_of_an_account_do_not_share_a_cap_per_key(conn: Connection) -> None:
    root, other = rich(conn, sats=1000), rich(conn, "acc_other", sats=0)
    records.set_caps(conn, root, Caps(per_key_sats=100), actor="op", reason="x", now=NOW)
    to = records.load(conn, other).public_id
    give_sats(conn, root, to, 90, id="a", reason="", key="one", now=NOW)
    with pytest.raises(Forbidden, match="per_key_sats"):
        give_sats(conn, root, to, 11, id="b", reason="", key="one", now=NOW)
    give_sats(conn, root, to, 100, id="b", reason="", key="two", now=NOW)
    give_sats(conn, root, to, 10, id="c", reason="", key="one", now=NOW)
    # The same gift again is the same gift, and counts once.
    give_sats(conn, root, to, 10, id="c", reason="", key="one", now=NOW)
    assert spent_by_key(conn, root, "one") == 100 * NSATS_PER_SAT


def test_whatever_name_a_delegated_key_acts_under_it_is_one_key_to_its_cap(conn: Connection) -> None:
    """A child linked wallets to itself, and each of them had the whole of `per_key_sats` anew."""
    child = child_of(conn, rich(conn), budget_sats=200, caps=Caps(per_key_sats=100)).account
    bounds = records.load(conn, child).caps
    for number, wallet in enumerate(("sbx-pk-its-own", "eip155:1:0xa", "eip155:1:0xb")):
        use = {"use": Use.RUNNING, "msats": 30_000, "now": NOW, "key": wallet}
        charge_once(conn, child, id=f"use:{number}", subject=f"sbx_{number}", **use)
    for name in ("sbx-pk-its-own", "eip155:1:0xa", "eip155:1:0xc", ""):
        assert spent_by(conn, child, bounds, key=name, now=NOW).key == 90 * NSATS_PER_SAT
    with pytest.raises(Forbidden, match="per_key_sats"):
        give(
            conn, child, child_of(conn, child, budget_sats=0, depth=1).account, 11, id="g", key="new", now=NOW
        )
    give(conn, child, child_of(conn, child, budget_sats=0, depth=1).account, 10, id="h", key="new", now=NOW)
    assert spent_by(conn, child, bounds, key="", now=NOW).key == 100 * NSATS_PER_SAT


def test_what_all_names_of_a_delegated_key_run_brings_its_cap_nearer(conn: Connection) -> None:
    root = rich(conn)
    child = child_of(conn, root, budget_sats=200, caps=Caps(per_key_sats=100)).account
    for account in (root, child):
        for number, wallet in enumerate(("eip155:1:0xa", "eip155:1:0xb")):
            names = {"id": f"m:{account}:{number}", "subject": f"sbx_{account}_{number}", "key": wallet}
            open_meter(conn, account, use=Use.RUNNING, rate=1000, now=NOW, **names)
    assert rate_by(conn, child, key="eip155:1:0xa") == 2000
    assert rate_by(conn, root, key="eip155:1:0xa") == 1000


def test_what_a_child_gives_back_is_spent_by_nobody(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    child = child_of(conn, root, budget_sats=100)
    assert spent_by_key(conn, root, child.cut_by) == 100 * NSATS_PER_SAT
    revocation.revoke(conn, child.account, actor="test", reason="test", now=NOW)
    revocation.finish(conn, child.account, now=NOW)
    assert spent_by_key(conn, root, child.cut_by) == 0


@pytest.mark.alone
def test_a_cap_is_checked_without_reading_the_history(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    bounds = Caps(per_key_sats=10**6, per_sandbox_sats=10**6, per_day_sats=10**6)
    row = {"owner": root, "kind": "running", "rate_msats": 1, "msats": 0, "key": "one"}
    conn.execute(
        insert(meter_segments),
        [
            {**row, "id": f"s{n}", "subject": f"sbx_{n}", "began_at": later(-n - 1), "ended_at": later(-n)}
            for n in range(20_000)
        ],
    )
    began = time.perf_counter()
    for _ in range(20):
        spent_by(conn, root, bounds, key="one", now=NOW, sandbox="sbx_7")
    took = (time.perf_counter() - began) / 20
    # Adding up twenty thousand rows takes a hundred times as long.
    assert took < 0.05


def test_caps_are_counted_on_the_29th_of_february_too(conn: Connection) -> None:
    account = rich(conn)
    leap_day = datetime(2028, 2, 29, 12, tzinfo=UTC)
    bounds = Caps(per_key_sats=1, per_sandbox_sats=1, per_day_sats=1)
    assert spent_by(conn, account, bounds, key="one", now=leap_day, sandbox="sbx") == Spent()


def test_a_capped_account_cannot_pass_its_cap_by_giving_to_children(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    records.set_caps(conn, root, Caps(per_day_sats=150), actor="op", reason="x", now=NOW)
    first = child_of(conn, root, budget_sats=100)
    assert records.load(conn, first.account).caps == Caps(per_day_sats=150)
    with pytest.raises(Forbidden, match="per_day_sats"):
        child_of(conn, root, budget_sats=51)
    child_of(conn, root, budget_sats=50)
    child_of(conn, root, budget_sats=150, now=NOW + timedelta(days=1))
