from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection

from sandboxer.accounts import caps, records
from sandboxer.accounts.caps import Caps, Spent
from sandboxer.accounts.sums import spent_by
from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.money.amounts import NSATS_PER_SAT
from sandboxer.money.metering import close_meter, open_meter
from sandboxer.money.meters import Use
from tests.accounts.conftest import NOW, child_of, later, rich

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
    seconds_left = int((caps.day_of(NOW) + timedelta(days=1) - NOW).total_seconds())
    late = Caps(per_day_sats=seconds_left + 1)
    assert caps.reached_at(late, spent(), rate=1000, now=NOW) is None
    assert caps.reached_at(late, spent(), rate=1000, account_rate=3000, now=NOW) is not None


def test_the_ledger_gives_the_sums_that_caps_count(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    open_meter(conn, root, id="m1", subject="sbx_1", use=Use.RUNNING, rate=1000, now=NOW)
    open_meter(conn, root, id="m2", subject="sbx_2", use=Use.RUNNING, rate=500, now=NOW)
    close_meter(conn, "m2", now=later(10))
    every = Caps(per_key_sats=10**6, per_sandbox_sats=10**6, per_day_sats=10**6)
    assert spent_by(conn, root, every, sandbox="sbx_1", now=later(20)) == spent(25, 20, 25)
    tomorrow = caps.day_of(NOW) + timedelta(days=1, seconds=3)
    assert spent_by(conn, root, every, now=tomorrow).today == 3 * NSATS_PER_SAT
    assert spent_by(conn, root, Caps(), now=later(20)) == Spent()


def test_caps_are_counted_on_the_29th_of_february_too(conn: Connection) -> None:
    account = rich(conn)
    leap_day = datetime(2028, 2, 29, 12, tzinfo=UTC)
    bounds = Caps(per_key_sats=1, per_sandbox_sats=1, per_day_sats=1)
    assert spent_by(conn, account, bounds, now=leap_day, sandbox="sbx") == Spent()


def test_a_capped_account_cannot_pass_its_cap_by_giving_to_children(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    records.set_caps(conn, root, Caps(per_day_sats=150), actor="op", reason="x", now=NOW)
    first = child_of(conn, root, budget_sats=100)
    assert records.load(conn, first.account).caps == Caps(per_day_sats=150)
    with pytest.raises(Forbidden, match="per_day_sats"):
        child_of(conn, root, budget_sats=51)
    child_of(conn, root, budget_sats=50)
    child_of(conn, root, budget_sats=150, now=NOW + timedelta(days=1))
