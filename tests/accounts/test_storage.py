"""Nothing durable without funds: the door, and how long a disk that nobody pays for is kept."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.accounts.storage import StoragePolicy, demand_funds, deposit_for, kept_for
from sandboxer.accounts.use_cases import give_sats
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.amounts import sats_for
from sandboxer.money.metering import change_rate, open_meter, set_policy
from sandboxer.money.policy import GracePolicy, Use
from tests.support.accounts import NOW, rich

DAY = StoragePolicy(deposit=timedelta(days=1))
WEEK = timedelta(days=7)


def keep(conn: Connection, account: str, rate: int, id: str = "vol_1") -> None:
    open_meter(conn, account, id=f"meter:{id}", subject=id, use=Use.STORED, rate=rate, now=NOW)


def ask(conn: Connection, account: str, rate: int, *, held_mb: int = 1, policy: StoragePolicy = DAY) -> int:
    return demand_funds(conn, account, more=rate, held_mb=held_mb, policy=policy, now=NOW)


@pytest.mark.parametrize("rate", [0, 1, 100])
def test_whoever_has_nothing_keeps_nothing_whatever_it_costs(conn: Connection, rate: int) -> None:
    with pytest.raises(InsufficientCredit):
        ask(conn, "acc_wallet_seen_first", rate)


def test_a_deposit_for_all_that_is_kept_opens_the_door(conn: Connection) -> None:
    account = rich(conn, sats=sats_for(3, DAY.deposit))
    ask(conn, account, 3)
    keep(conn, account, 2)
    ask(conn, account, 1)
    with pytest.raises(InsufficientCredit) as refused:
        ask(conn, account, 2)
    assert refused.value.facts["required"] == sats_for(4, DAY.deposit)


def test_what_runs_is_no_part_of_the_deposit(conn: Connection) -> None:
    account = rich(conn, sats=sats_for(1, DAY.deposit))
    keep(conn, account, 5)
    change_rate(conn, "meter:vol_1", use=Use.RUNNING, rate=0, now=NOW)
    ask(conn, account, 1)


def test_the_operator_may_let_accounts_keep_a_little_for_nothing(conn: Connection) -> None:
    generous = StoragePolicy(unpaid_mb=64)
    ask(conn, "acc_poor", 1, held_mb=64, policy=generous)
    with pytest.raises(InsufficientCredit):
        ask(conn, "acc_poor", 1, held_mb=65, policy=generous)


def test_the_same_sats_do_not_answer_for_what_two_accounts_keep(conn: Connection) -> None:
    """Else one deposit, given from wallet to wallet, would fill the pool."""
    set_policy(conn, grace=GracePolicy(), reserve=timedelta(0), deposit=DAY.deposit)
    account, other = rich(conn, sats=200), rich(conn, "acc_other", sats=0)
    keep(conn, account, 2)
    to = records.load(conn, other).public_id
    with pytest.raises(InsufficientCredit):
        give_sats(conn, account, to, 28, id="a", reason="", key="", now=NOW)
    give_sats(conn, account, to, 27, id="b", reason="", key="", now=NOW)


def test_a_disk_that_hardly_paid_is_hardly_kept() -> None:
    few = kept_for(stored=10, paid=1, available=0, retention=WEEK, policy=DAY)
    assert few == DAY.least
    some = kept_for(stored=10, paid=360, available=0, retention=WEEK, policy=DAY)
    assert some == timedelta(hours=10)
    much = kept_for(stored=10, paid=10**15, available=0, retention=WEEK, policy=DAY)
    assert much == WEEK


def test_a_disk_is_kept_in_full_for_who_can_put_a_deposit_down_or_where_keeping_is_free() -> None:
    enough = deposit_for(10, DAY)
    assert kept_for(stored=10, paid=0, available=enough, retention=WEEK, policy=DAY) == WEEK
    assert kept_for(stored=10, paid=0, available=enough - 1, retention=WEEK, policy=DAY) == DAY.least
    assert kept_for(stored=0, paid=0, available=0, retention=WEEK, policy=DAY) == WEEK


@given(
    stored=st.integers(1, 10**6),
    paid=st.integers(0, 10**9),
    available=st.integers(0, 10**6),
    days=st.integers(0, 60),
)
def test_a_disk_is_never_kept_longer_than_the_retention_time(
    stored: int, paid: int, available: int, days: int
) -> None:
    retention = timedelta(days=days)
    kept = kept_for(stored=stored, paid=paid, available=available, retention=retention, policy=DAY)
    assert timedelta(0) <= kept <= retention
    if retention > kept > DAY.least:
        assert sats_for(stored, kept) <= paid
