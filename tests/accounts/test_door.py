"""One door for every actor, in the transaction of the act itself."""

from __future__ import annotations

from datetime import datetime

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records, storage
from sandboxer.accounts.authority import Act, demand_may, load_authority, refusal
from sandboxer.accounts.operators import adjust
from sandboxer.accounts.records import Change
from sandboxer.accounts.revocation import finish, revoke
from sandboxer.accounts.use_cases import give_sats
from sandboxer.kernel.errors import Forbidden
from sandboxer.money.buckets import settle_account
from sandboxer.money.ledger import balance
from sandboxer.money.records import bucket_id
from sandboxer.money.verification import verify
from sandboxer.payments.credits import account_to_pay, credit_final
from tests.support.accounts import NOW, OPERATOR, child_of, later, rich


def end(conn: Connection, account: str, change: Change) -> None:
    records.change_status(conn, account, change, actor="op", reason="abuse", now=NOW)


@pytest.mark.parametrize("act", list(Act))
@pytest.mark.parametrize("change", [Change.SUSPEND, Change.CLOSE])
def test_an_account_that_may_not_act_may_not_do_any_of_it(conn: Connection, act: Act, change: Change) -> None:
    account = rich(conn)
    demand_may(conn, account, act, now=NOW)
    end(conn, account, change)
    with pytest.raises(Forbidden) as refused:
        demand_may(conn, account, act, now=NOW)
    assert refused.value.facts["reason"] == "not_active"


@pytest.mark.parametrize("act", list(Act))
def test_a_revoked_an_expired_and_an_orphaned_child_may_not_either(conn: Connection, act: Act) -> None:
    root = rich(conn)
    revoked = child_of(conn, root, budget_sats=10).account
    expiring = child_of(conn, root, budget_sats=10, expires_at=later(60)).account
    below = child_of(conn, expiring, budget_sats=1, depth=0, expires_at=later(60)).account
    for account in (revoked, expiring, below):
        demand_may(conn, account, act, now=NOW)
    revoke(conn, revoked, actor="t", reason="done", now=NOW)
    moments: list[tuple[str, datetime]] = [(revoked, NOW), (expiring, later(60)), (below, later(60))]
    for account, now in moments:
        with pytest.raises(Forbidden):
            demand_may(conn, account, act, now=now)
    finish(conn, revoked, now=NOW)
    with pytest.raises(Forbidden):
        demand_may(conn, revoked, act, now=NOW)


def test_whoever_pays_is_not_told_what_the_operator_did(conn: Connection) -> None:
    account = rich(conn)
    end(conn, account, Change.SUSPEND)
    error = refusal(load_authority(conn, account), Act.FUND, now=NOW)
    assert error is not None
    assert "suspended" not in str(error)


def test_an_account_that_nobody_has_seen_stands(conn: Connection) -> None:
    demand_may(conn, "acc_never_seen", Act.RUN, now=NOW)


def test_gifts_neither_leave_nor_reach_an_account_that_may_not_act(conn: Connection) -> None:
    giver, taker = rich(conn), rich(conn, "acc_taker")
    end(conn, taker, Change.SUSPEND)
    for one, other in ((giver, taker), (taker, giver)):
        public_id = records.load(conn, other).public_id
        with pytest.raises(Forbidden):
            give_sats(conn, one, public_id, 10, id="1", reason="x", key="k", now=NOW)
    assert balance(conn, bucket_id(giver)).posted == balance(conn, bucket_id(taker)).posted == 1000


def test_nobody_is_asked_to_pay_for_an_account_that_may_not_act(conn: Connection) -> None:
    account = rich(conn)
    public_id = records.load(conn, account).public_id
    assert account_to_pay(conn, public_id, now=NOW).id == account
    end(conn, account, Change.SUSPEND)
    with pytest.raises(Forbidden):
        account_to_pay(conn, public_id, now=NOW)


def test_nothing_is_kept_for_an_account_that_may_not_act(conn: Connection) -> None:
    account = rich(conn)
    end(conn, account, Change.SUSPEND)
    with pytest.raises(Forbidden):
        storage.demand_funds(conn, account, more=0, held_mb=1, policy=storage.StoragePolicy(), now=NOW)


@pytest.mark.parametrize("change", [Change.SUSPEND, Change.CLOSE])
def test_money_that_was_under_way_is_credited_and_the_operator_can_hand_it_back(
    conn: Connection, change: Change
) -> None:
    account = rich(conn, sats=0)
    end(conn, account, change)
    assert credit_final(conn, account, 500, id="deposit:1", source="invoice", now=NOW)
    assert settle_account(conn, account, now=NOW).posted == 500
    adjust(conn, OPERATOR, account, -500, id="back", reason="sent back by hand", now=NOW)
    assert settle_account(conn, account, now=NOW).posted == 0
    assert verify(conn).is_whole
