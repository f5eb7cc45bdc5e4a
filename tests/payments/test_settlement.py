"""What a payment's fate does to a tier that it bought: sold once, and only its own time taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.kernel.clock import add_months
from sandboxer.money.buckets import settle_account
from sandboxer.money.verification import verify
from sandboxer.payments import records, settlement
from sandboxer.payments.lifecycle import Signal, State
from sandboxer.payments.records import Order, Payment, Purpose
from sandboxer.payments.settlement import Depth
from sandboxer.payments.x402.ways import Fate, Sighting
from sandboxer.store.databases import open_database
from tests.support.schemas import copy_and_migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DEPTH = Depth(final=1, watched=12)
CONFIRMED = Sighting(fate=Fate.CONFIRMED, txid="0x1", block="0x2", confirmations=1)
UNSEEN = Sighting(fate=Fate.UNSEEN)
EXPIRED = Sighting(fate=Fate.FAILED, reason="expired")
GONE = Sighting(fate=Fate.UNSEEN, head=20, is_block_there=False)
GONE_FOR_LONG = Sighting(fate=Fate.UNSEEN, head=40, is_block_there=False)
GONE_FOR_GOOD = Sighting(fate=Fate.FAILED, reason="expired", head=40, is_block_there=False)


@pytest.fixture
def conn(database_url: str) -> Iterator[Connection]:
    database = open_database(database_url)
    copy_and_migrate(database)
    with database.writing.begin() as connection:
        accounts.create(connection, id="acc_alice", actor="test", reason="test", now=NOW)
        yield connection
        assert verify(connection).is_whole
    database.dispose()


def queued(conn: Connection, nonce: str, *, purpose: Purpose = Purpose.KEY) -> Payment:
    order = Order(
        network="eip155:1",
        payer="0x" + "a" * 40,
        nonce=nonce,
        payload_hash=nonce,
        identifier=None,
        scheme="exact",
        asset="0x" + "b" * 40,
        amount=7_000_000,
        sats=7000,
        account="acc_alice",
        purpose=purpose,
        details={"tier": 1, "months": 1},
        payload={},
        requirements={},
        valid_until=None,
    )
    return records.open_payment(conn, order, now=NOW, look_at=NOW)[0]


def submitted(conn: Connection, nonce: str) -> Payment:
    return records.move(conn, queued(conn, nonce), Signal.SUBMIT, reason="test", now=NOW)


def see(conn: Connection, payment: Payment, sighting: Sighting, *, now: datetime = NOW) -> Payment:
    return settlement.see(conn, payment, sighting, depth=DEPTH, pending_limit=0, now=now)


def paid_until(conn: Connection) -> datetime | None:
    return accounts.load(conn, "acc_alice").entitled_until


def test_a_payment_that_the_chain_took_back_and_brought_again_sells_once(conn: Connection) -> None:
    payment = see(conn, submitted(conn, "1"), CONFIRMED)
    assert see(conn, payment, UNSEEN).state is State.CONFIRMED
    assert see(conn, payment, GONE).state is State.DOUBTED
    payment = see(conn, payment, GONE_FOR_LONG)
    assert payment.state is State.SETTLEMENT_PENDING
    payment = see(conn, payment, CONFIRMED)
    assert payment.state is State.CONFIRMED
    assert paid_until(conn) == add_months(NOW, 1)


def test_a_payment_that_never_came_takes_no_tier_that_another_paid_for(conn: Connection) -> None:
    see(conn, submitted(conn, "1"), CONFIRMED)
    refused = settlement.take_back(conn, queued(conn, "2"), reason="refused", now=NOW)
    assert see(conn, refused, EXPIRED).state is State.FAILED
    assert paid_until(conn) == add_months(NOW, 1)


def test_a_payment_that_is_gone_for_good_takes_only_its_own_time(conn: Connection) -> None:
    see(conn, submitted(conn, "1"), CONFIRMED)
    second = see(conn, submitted(conn, "2"), CONFIRMED)
    assert paid_until(conn) == add_months(NOW, 2)
    see(conn, second, GONE)
    assert see(conn, second, GONE_FOR_GOOD).state is State.FAILED
    assert paid_until(conn) == add_months(NOW, 1)


def test_the_only_payment_gone_ends_the_tier(conn: Connection) -> None:
    payment = see(conn, submitted(conn, "1"), CONFIRMED)
    see(conn, payment, GONE, now=NOW + timedelta(hours=1))
    see(conn, payment, GONE_FOR_GOOD, now=NOW + timedelta(hours=1))
    assert accounts.load(conn, "acc_alice").tier is None


def test_a_payment_is_given_up_when_it_is_missing_for_as_long_as_one_that_was_confirmed(
    conn: Connection,
) -> None:
    payment = submitted(conn, "1")
    for head in (20, 21, 31):
        assert see(conn, payment, replace(EXPIRED, head=head)).state is State.SETTLEMENT_PENDING
    # From a head that is behind the last one seen nothing is given up.
    assert see(conn, payment, replace(EXPIRED, head=30)).state is State.SETTLEMENT_PENDING
    assert see(conn, payment, replace(EXPIRED, head=32)).state is State.FAILED


def test_a_node_that_finds_its_memory_again_has_denied_nothing(conn: Connection) -> None:
    payment = submitted(conn, "1")
    see(conn, payment, replace(EXPIRED, head=20))
    assert see(conn, payment, Sighting(fate=Fate.SEEN, head=25)).state is State.MEMPOOL
    assert see(conn, payment, replace(EXPIRED, head=32)).state is State.MEMPOOL
    assert see(conn, payment, replace(CONFIRMED, head=33)).state is State.CONFIRMED


def test_what_was_never_handed_on_is_not_followed_for_ever(conn: Connection) -> None:
    payment = queued(conn, "1")
    assert see(conn, payment, UNSEEN, now=NOW + timedelta(hours=23)).look_at is not None
    assert see(conn, payment, UNSEEN, now=NOW + timedelta(days=1)).look_at is None


def test_creates_at_the_same_time_share_their_payers_limit(conn: Connection) -> None:
    for nonce in ("1", "2"):
        payment = queued(conn, nonce, purpose=Purpose.CREATE)
        settlement.grant(conn, payment, pending_limit=9000, now=NOW)
    assert settle_account(conn, "acc_alice", now=NOW).posted == 9000
