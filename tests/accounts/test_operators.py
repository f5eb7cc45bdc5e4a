from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import audit, operators
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.records import Status
from sandboxer.accounts.revocation import finish, revoke
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden, InsufficientCredit, InvalidRequest, SandboxerError
from sandboxer.money.ledger import EXTERNAL, INCOME, balance
from sandboxer.money.metering import close_meter, open_meter
from sandboxer.money.policy import Use
from sandboxer.money.verification import verify
from tests.support.accounts import NOW, OPERATOR, child_of, later, rich, sats_of

ANYONE = Caller(public_key="sbx-pk-anyone", account="acc_root")
ACTS: dict[str, Callable[[Connection, Caller, str], Any]] = {
    "create": lambda c, who, why: operators.create_account(c, who, reason=why, now=NOW),
    "suspend": lambda c, who, why: operators.suspend_account(c, who, "acc_root", reason=why, now=NOW),
    "reinstate": lambda c, who, why: operators.reinstate_account(c, who, "acc_root", reason=why, now=NOW),
    "close": lambda c, who, why: operators.close_account(c, who, "acc_root", reason=why, now=NOW),
    "entitle": lambda c, who, why: operators.entitle_account(
        c, who, "acc_root", tier=2, until=later(9), reason=why, now=NOW
    ),
    "cap": lambda c, who, why: operators.cap_account(c, who, "acc_root", Caps(), reason=why, now=NOW),
    "adjust": lambda c, who, why: operators.adjust(c, who, "acc_root", 1, id="a", reason=why, now=NOW),
    "pay out": lambda c, who, why: operators.pay_out(c, who, 1, id="p", reason=why, now=NOW),
}


def actions(conn: Connection) -> list[str]:
    return [entry.action for entry in audit.page(conn)]


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_nobody_but_the_operator_may_act_and_nobody_without_a_reason(
    conn: Connection, act: Callable[[Connection, Caller, str], Any]
) -> None:
    rich(conn)
    with pytest.raises(Forbidden):
        act(conn, ANYONE, "because")
    with pytest.raises((InvalidRequest, SandboxerError)):
        act(conn, OPERATOR, "  ")
    assert actions(conn) == []


def test_nobody_but_the_operator_may_read_everything(conn: Connection) -> None:
    rich(conn)
    for read in (
        lambda: operators.view_account(conn, ANYONE, "acc_root", now=NOW),
        lambda: operators.list_accounts(conn, ANYONE),
        lambda: operators.totals(conn, ANYONE),
    ):
        with pytest.raises(Forbidden):
            read()


def test_every_act_is_written_down_once(conn: Connection) -> None:
    made = operators.create_account(conn, OPERATOR, id="acc_a", name="agent", reason="asked", now=NOW)
    for _ in range(2):
        operators.suspend_account(conn, OPERATOR, made.id, reason="abuse", now=NOW)
    operators.reinstate_account(conn, OPERATOR, made.id, reason="mistake", now=NOW)
    operators.cap_account(conn, OPERATOR, made.id, Caps(per_day_sats=5), reason="asked", now=NOW)
    until = NOW + timedelta(days=30)
    operators.entitle_account(conn, OPERATOR, made.id, tier=3, until=until, reason="paid", now=NOW)
    operators.close_account(conn, OPERATOR, made.id, reason="asked", now=NOW)
    assert actions(conn) == [
        "account.create",
        "account.suspend",
        "account.reinstate",
        "account.cap",
        "account.entitle",
        "account.close",
    ]
    assert audit.page(conn)[0].actor == f"key:{OPERATOR.public_key}"
    assert audit.verify(conn).is_whole


def test_an_adjustment_goes_both_ways_once_per_id_and_never_below_nothing(conn: Connection) -> None:
    rich(conn, sats=100)
    assert operators.adjust(conn, OPERATOR, "acc_root", 50, id="1", reason="sorry", now=NOW)
    assert not operators.adjust(conn, OPERATOR, "acc_root", 50, id="1", reason="sorry", now=later(1))
    assert operators.adjust(conn, OPERATOR, "acc_root", -120, id="2", reason="mistake", now=NOW)
    assert sats_of(conn, "acc_root") == 30
    with pytest.raises(InsufficientCredit):
        operators.adjust(conn, OPERATOR, "acc_root", -31, id="3", reason="mistake", now=NOW)
    with pytest.raises(Conflict):
        operators.adjust(conn, OPERATOR, "acc_root", 51, id="1", reason="sorry", now=NOW)
    with pytest.raises(InvalidRequest):
        operators.adjust(conn, OPERATOR, "acc_root", 0, id="4", reason="nothing", now=NOW)
    assert balance(conn, operators.ADJUSTMENTS).posted == 70
    assert actions(conn) == ["account.adjust"] * 2
    assert verify(conn).is_whole


def test_no_more_income_is_paid_out_than_was_earned(conn: Connection) -> None:
    rich(conn, sats=100)
    open_meter(conn, "acc_root", id="m", subject="sbx_1", use=Use.RUNNING, rate=1000, now=NOW)
    close_meter(conn, "m", now=later(40))
    with pytest.raises(InsufficientCredit):
        operators.pay_out(conn, OPERATOR, 41, id="1", reason="rent", now=later(50))
    assert operators.pay_out(conn, OPERATOR, 40, id="1", reason="rent", now=later(50))
    assert not operators.pay_out(conn, OPERATOR, 40, id="1", reason="rent", now=later(51))
    assert balance(conn, INCOME).posted == 0
    assert balance(conn, EXTERNAL).posted == -60
    assert actions(conn) == ["income.pay_out"]
    assert verify(conn).is_whole


def test_the_operator_sees_every_account_with_its_money_and_sums_that_are_zero(conn: Connection) -> None:
    rich(conn, sats=100)
    child = child_of(conn, "acc_root", budget_sats=40)
    seen = operators.list_accounts(conn, OPERATOR)
    assert {account.id for account in seen} == {"acc_root", child.account}
    money = operators.view_account(conn, OPERATOR, child.account, now=NOW).money
    assert money is not None
    assert money.available == 40
    assert sum(operators.totals(conn, OPERATOR)["sats"].values()) == 0


def test_closing_a_parent_needs_its_children_to_end_first(conn: Connection) -> None:
    rich(conn)
    child = child_of(conn, "acc_root")
    with pytest.raises(Conflict):
        operators.close_account(conn, OPERATOR, "acc_root", reason="asked", now=NOW)
    revoke(conn, child.account, actor="op", reason="closing", now=NOW)
    finish(conn, child.account, now=NOW)
    closed = operators.close_account(conn, OPERATOR, "acc_root", reason="asked", now=NOW)
    assert closed.status is Status.CLOSED
