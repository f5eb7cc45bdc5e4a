"""A delegated budget pays for use, feeds children and goes back up; nothing else leaves it, whoever asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.accounts.operators import adjust
from sandboxer.accounts.revocation import finish, revoke
from sandboxer.accounts.use_cases import give_sats
from sandboxer.kernel.errors import Forbidden, InsufficientCredit
from sandboxer.money.buckets import settle_account, spend
from sandboxer.money.ledger import EXTERNAL, INCOME, balance, open_account, post_transfer
from sandboxer.money.metering import begin_charge, close_meter, hold_slice
from sandboxer.money.records import bucket_id, debt_id, frozen_id, unconfirmed_id
from sandboxer.money.transfers import AccountKind, Phase, Transfer, may_leave_budget
from sandboxer.money.verification import verify
from tests.support.accounts import NOW, OPERATOR, child_of, later, rich

# Every way by which sats leave some account today, and some that nobody has thought of yet.
WAYS_OUT = (
    ("gift", "external:gifts"),
    ("gift", "exchange:sats"),
    ("exchange", "exchange:sats"),
    ("sale", INCOME),
    ("payout", EXTERNAL),
    ("refund", EXTERNAL),
    ("tier", INCOME),
    ("spend", "bucket:acc_other"),
    ("credit", "bucket:acc_other"),
    ("payment", "bucket:acc_other"),
    ("charge", "bucket:acc_other"),
    ("hold", "bucket:acc_other"),
    ("hold", EXTERNAL),
    ("repay", "bucket:acc_other"),
    ("delegate", EXTERNAL),
    ("adjust", "bucket:acc_other"),
    ("reversal", "bucket:acc_other"),
)


def posted(conn: Connection, account: str) -> int:
    return balance(conn, bucket_id(account)).posted


@pytest.mark.parametrize("phase", [Phase.SINGLE, Phase.PENDING])
@pytest.mark.parametrize(("kind", "to"), WAYS_OUT)
def test_the_ledger_itself_lets_nothing_else_leave_a_budget(
    conn: Connection, kind: str, to: str, phase: Phase
) -> None:
    root, other = rich(conn), rich(conn, "acc_other", 0)
    child = child_of(conn, root, budget_sats=100).account
    for name in ("external:gifts", "exchange:sats"):
        open_account(conn, id=name, kind=AccountKind.EXTERNAL, now=NOW)
    stolen = Transfer(
        id="theft", debit=bucket_id(child), credit=to, amount=60, kind=kind, reason="x", at=NOW, phase=phase
    )
    with pytest.raises(Forbidden) as refused:
        post_transfer(conn, stolen)
    assert refused.value.facts["reason"] == "delegated_budget"
    assert (posted(conn, child), posted(conn, other), posted(conn, root)) == (100, 0, 900)
    assert verify(conn).is_whole


def test_a_child_cannot_give_its_budget_to_an_account_of_its_own(conn: Connection) -> None:
    thief = rich(conn, "acc_thief", 0)
    child = child_of(conn, rich(conn), budget_sats=100).account
    public_id = records.load(conn, thief).public_id
    with pytest.raises(Forbidden):
        give_sats(conn, child, public_id, 60, id="1", reason="mine", key="k", now=NOW)
    assert (posted(conn, child), posted(conn, thief)) == (100, 0)


def test_use_child_budgets_and_the_way_back_are_open(conn: Connection) -> None:
    root = rich(conn)
    child = child_of(conn, root, budget_sats=100).account
    grandchild = child_of(conn, child, budget_sats=40, depth=1).account
    hold = hold_slice(conn, grandchild, id="hold:sbx_1:0", rate=1000, reason="create", now=NOW)
    assert hold is not None
    begin_charge(
        conn, grandchild, hold_id=hold.id, meter_id="meter:sbx_1", subject="sbx_1", rate=1000, now=NOW
    )
    assert settle_account(conn, grandchild, now=later(10)).posted == 30
    for account in (grandchild, child):
        revoke(conn, account, actor="t", reason="done", now=later(10))
    close_meter(conn, "meter:sbx_1", now=later(10))
    for account in (grandchild, child):
        finish(conn, account, now=later(10))
    assert posted(conn, root) == 990
    assert verify(conn).is_whole


def test_the_operator_may_take_from_a_budget(conn: Connection) -> None:
    child = child_of(conn, rich(conn), budget_sats=100).account
    adjust(conn, OPERATOR, child, -30, id="a", reason="abuse", now=NOW)
    assert posted(conn, child) == 70


def test_an_ordinary_bucket_is_not_bound(conn: Connection) -> None:
    root = rich(conn)
    spend(conn, root, 10, id="s", to=EXTERNAL, kind="anything", reason="x", now=NOW)
    with pytest.raises(InsufficientCredit):
        spend(conn, root, 5000, id="s2", to=EXTERNAL, kind="anything", reason="x", now=NOW)


@given(kind=st.text(max_size=20), to=st.text(max_size=20))
def test_no_word_that_is_not_in_the_table_opens_a_budget(kind: str, to: str) -> None:
    known = {"charge", "hold", "repay", "delegate", "delegate_return", "reversal", "adjust"}
    if kind not in known:
        assert not may_leave_budget(kind, to)


def test_a_debt_and_what_was_never_confirmed_are_taken_from_a_budget() -> None:
    assert may_leave_budget("repay", debt_id("acc_a"))
    assert may_leave_budget("reversal", unconfirmed_id("acc_a"))
    assert may_leave_budget("reversal", frozen_id("acc_a"))
    assert may_leave_budget("reversal", "external:x402")
