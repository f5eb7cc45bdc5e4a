"""Outside money in: final, taken back, and usable before it is final but not to be given away."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.accounts.use_cases import give_sats
from sandboxer.identity.signatures.wallets import contract_wallet, wallet_of
from sandboxer.kernel.errors import InsufficientCredit, NotFound
from sandboxer.money.buckets import settle_account, unconfirmed
from sandboxer.money.metering import open_meter
from sandboxer.money.policy import Standing, Use
from sandboxer.money.records import Bucket
from sandboxer.money.verification import verify
from sandboxer.payments import credits
from sandboxer.store.databases import open_database
from tests.support.schemas import copy_and_migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ALICE, BOB = "acc_alice", "acc_bob"


@pytest.fixture
def conn(database_url: str) -> Iterator[Connection]:
    database = open_database(database_url)
    copy_and_migrate(database)
    with database.writing.begin() as connection:
        for account in (ALICE, BOB):
            records.create(connection, id=account, actor="test", reason="test", now=NOW)
        yield connection
        assert verify(connection).is_whole
    database.dispose()


def bucket(conn: Connection, now: datetime = NOW) -> Bucket:
    return settle_account(conn, ALICE, now=now)


def begin(conn: Connection, sats: int, *, at_most: int = 10_000, id: str = "pay_1") -> int:
    return credits.pending_begin(conn, ALICE, sats, payment_id=id, at_most=at_most, source="x402", now=NOW)


def test_a_final_credit_counts_once(conn: Connection) -> None:
    assert credits.credit_final(conn, ALICE, 500, id="inv:1", source="invoice", now=NOW)
    assert not credits.credit_final(conn, ALICE, 500, id="inv:1", source="invoice", now=NOW)
    assert bucket(conn).available == 500


def test_what_was_spent_of_a_reversed_payment_becomes_debt(conn: Connection) -> None:
    credits.credit_final(conn, ALICE, 500, id="inv:1", source="invoice", now=NOW)
    public = records.load(conn, BOB).public_id
    give_sats(conn, ALICE, public, 200, id="g1", reason="thanks", key="k", now=NOW)
    assert credits.reverse_final(conn, ALICE, 500, id="inv:1:reorg", reason="reorg", now=NOW)
    assert not credits.reverse_final(conn, ALICE, 500, id="inv:1:reorg", reason="reorg", now=NOW)
    after = bucket(conn)
    assert (after.posted, after.debt, after.available) == (0, 200, 0)
    credits.credit_final(conn, ALICE, 500, id="inv:2", source="invoice", now=NOW)
    assert (bucket(conn).posted, bucket(conn).debt) == (300, 0)


def test_pending_credit_buys_time_and_cannot_be_given_away(conn: Connection) -> None:
    begin(conn, 500)
    assert bucket(conn).available == 500
    assert unconfirmed(conn, ALICE) == 500
    public = records.load(conn, BOB).public_id
    with pytest.raises(InsufficientCredit):
        give_sats(conn, ALICE, public, 1, id="g1", reason="thanks", key="k", now=NOW)
    open_meter(conn, ALICE, id="m", subject="sbx", use=Use.RUNNING, rate=1000, now=NOW)
    assert bucket(conn, NOW + timedelta(seconds=100)).posted == 400


def test_confirmed_credit_is_free_to_give(conn: Connection) -> None:
    begin(conn, 500)
    confirm = {"payment_id": "pay_1", "source": "x402", "now": NOW}
    assert credits.pending_confirm(conn, ALICE, 500, **confirm)  # type: ignore[arg-type]
    assert not credits.pending_confirm(conn, ALICE, 500, **confirm)  # type: ignore[arg-type]
    assert unconfirmed(conn, ALICE) == 0
    give_sats(conn, ALICE, records.load(conn, BOB).public_id, 500, id="g1", reason="thanks", key="k", now=NOW)


def test_beyond_the_payers_limit_credit_waits_for_confirmation(conn: Connection) -> None:
    assert begin(conn, 500, at_most=120) == 120
    assert begin(conn, 500, at_most=500) == 120
    assert bucket(conn).available == 120
    credits.pending_confirm(conn, ALICE, 500, payment_id="pay_1", source="x402", now=NOW)
    assert (bucket(conn).available, unconfirmed(conn, ALICE)) == (500, 0)


def test_a_payment_that_fails_is_taken_back_and_what_it_bought_is_owed(conn: Connection) -> None:
    begin(conn, 500)
    open_meter(conn, ALICE, id="m", subject="sbx", use=Use.RUNNING, rate=1000, now=NOW)
    later = NOW + timedelta(seconds=30)
    assert credits.pending_fail(conn, ALICE, payment_id="pay_1", reason="expired", now=later)
    assert not credits.pending_fail(conn, ALICE, payment_id="pay_1", reason="expired", now=later)
    after = bucket(conn, later)
    assert (after.posted, after.debt, unconfirmed(conn, ALICE)) == (0, 30, 0)


@pytest.mark.parametrize("how", ["reversed", "failed"])
def test_grace_earned_by_money_that_went_back_goes_back_with_it(conn: Connection, how: str) -> None:
    if how == "reversed":
        credits.credit_final(conn, ALICE, 1000, id="inv:1", source="invoice", now=NOW)
    else:
        begin(conn, 1000)
    open_meter(conn, ALICE, id="m", subject="sbx", use=Use.RUNNING, rate=1000, now=NOW)
    spent = NOW + timedelta(seconds=600)
    assert bucket(conn, spent).collected == 600
    if how == "reversed":
        credits.reverse_final(conn, ALICE, 1000, id="inv:1:reorg", reason="reorg", now=spent)
    else:
        credits.pending_fail(conn, ALICE, payment_id="pay_1", reason="dropped", now=spent)
    after = bucket(conn, spent)
    assert (after.debt, after.collected) == (600, 0)
    assert after.health.standing is Standing.REAPED
    # What is paid for the time all the same has earned its grace, once.
    credits.credit_final(conn, ALICE, 600, id="inv:2", source="invoice", now=spent)
    assert (bucket(conn, spent).debt, bucket(conn, spent).collected) == (0, 600)


def test_a_paying_wallet_has_one_account_whatever_its_chain(conn: Connection) -> None:
    address = "0x" + "ab" * 20
    first = credits.account_for_wallet(conn, wallet_of(f"eip155:8453:{address}"), now=NOW)
    assert credits.account_for_wallet(conn, wallet_of(address), now=NOW).id == first.id
    # A contract is another wallet on every chain.
    there = [
        credits.account_for_wallet(conn, contract_wallet(chain, address), now=NOW).id
        for chain in ("eip155:8453", "eip155:10", "eip155:8453")
    ]
    assert there[0] == there[2]
    assert len({first.id, *there}) == 3


def test_an_unknown_account_cannot_be_paid_for(conn: Connection) -> None:
    with pytest.raises(NotFound):
        credits.account_to_pay(conn, "pub_nobody", now=NOW)
