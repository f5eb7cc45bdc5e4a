from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, timedelta, timezone

import pytest
from sqlalchemy import Connection, text

from sandboxer.kernel.errors import Conflict, InsufficientCredit, InvalidRequest, NotFound
from sandboxer.money.amounts import MAX_AMOUNT
from sandboxer.money.ledger import (
    EXTERNAL,
    INCOME,
    balance,
    find_transfer,
    is_pending,
    open_account,
    open_platform_accounts,
    post_transfer,
    void_pending,
)
from sandboxer.money.transfers import (
    DIGEST_MODULUS,
    AccountKind,
    Asset,
    Phase,
    Transfer,
    canonical,
    read_transfers,
)
from sandboxer.money.verification import verify
from tests.support.money import NOW, later


@pytest.fixture
def ledger(conn: Connection) -> Connection:
    open_platform_accounts(conn, now=NOW)
    for name in ("a", "b"):
        open_account(conn, id=name, kind=AccountKind.BUCKET, owner=name, now=NOW)
    post_transfer(conn, deposit("d1", "a", 1000))
    return conn


def deposit(id: str, to: str, amount: int) -> Transfer:
    return Transfer(id=id, debit=EXTERNAL, credit=to, amount=amount, kind="credit", reason="test", at=NOW)


def gift(id: str, amount: int, **changes: object) -> Transfer:
    made = Transfer(id=id, debit="a", credit="b", amount=amount, kind="gift", reason="test", at=NOW)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_transfer_leaves_one_side_and_reaches_the_other(ledger: Connection) -> None:
    assert post_transfer(ledger, gift("t1", 300))
    assert balance(ledger, "a").posted == 700
    assert balance(ledger, "b").posted == 300
    assert verify(ledger).is_whole


def test_the_same_id_is_the_same_transfer(ledger: Connection) -> None:
    assert post_transfer(ledger, gift("t1", 300, data={"x": 1}))
    assert not post_transfer(ledger, gift("t1", 300, data={"x": 1}, at=later(5)))
    assert balance(ledger, "a").posted == 700
    assert verify(ledger).is_whole


def test_a_retry_is_known_even_when_the_money_is_gone(ledger: Connection) -> None:
    assert post_transfer(ledger, gift("t1", 1000))
    assert not post_transfer(ledger, gift("t1", 1000))


@pytest.mark.parametrize(
    "other",
    [
        {"amount": 301},
        {"credit": INCOME},
        {"kind": "other"},
        {"reason": "other"},
        {"data": {"x": 2}},
        {"phase": Phase.PENDING},
    ],
)
def test_the_same_id_with_other_content_is_a_conflict_and_leaves_nothing(
    ledger: Connection, other: dict[str, object]
) -> None:
    post_transfer(ledger, gift("t1", 300))
    with pytest.raises(Conflict, match="t1"):
        post_transfer(ledger, gift("t1", 300, **other) if "amount" not in other else gift("t1", 301))
    assert balance(ledger, "a").posted == 700
    assert verify(ledger).is_whole


def test_more_than_is_there_is_refused_with_what_is_missing_and_leaves_nothing(ledger: Connection) -> None:
    with pytest.raises(InsufficientCredit) as caught:
        post_transfer(ledger, gift("t1", 1001))
    assert caught.value.facts["required"] == 1001
    assert caught.value.facts["available"] == 1000
    assert verify(ledger).is_whole
    assert verify(ledger).transfers == 1


@pytest.mark.parametrize("amount", [0, -1, True, 1.5, "1", MAX_AMOUNT + 1])
def test_only_whole_positive_amounts_within_bounds_are_amounts(amount: object) -> None:
    with pytest.raises(InvalidRequest):
        gift("t1", amount)  # type: ignore[arg-type]


def test_two_sides_differ_and_ids_are_named() -> None:
    with pytest.raises(InvalidRequest):
        gift("t1", 1, credit="a")
    with pytest.raises(InvalidRequest):
        gift("", 1)


def test_unknown_accounts_are_named(ledger: Connection) -> None:
    for side in ("debit", "credit"):
        with pytest.raises(NotFound, match="nobody"):
            post_transfer(ledger, gift("t1", 1, **{side: "nobody"}))
    assert balance(ledger, "a").posted == 1000
    assert verify(ledger).is_whole


def test_a_transfer_never_crosses_assets(ledger: Connection) -> None:
    open_account(ledger, id="card", kind=AccountKind.CARD, asset=Asset.USD_CENTS, owner="a", now=NOW)
    with pytest.raises(InvalidRequest, match="usd_cents"):
        post_transfer(ledger, gift("t1", 1, debit="card"))
    with pytest.raises(InvalidRequest, match="usd_cents"):
        post_transfer(ledger, gift("t1", 1, credit="card"))
    assert verify(ledger).is_whole


def test_a_hold_is_out_of_reach_until_it_is_voided(ledger: Connection) -> None:
    assert post_transfer(ledger, gift("h1", 800, phase=Phase.PENDING))
    assert (balance(ledger, "a").posted, balance(ledger, "a").held, balance(ledger, "a").available) == (
        1000,
        800,
        200,
    )
    assert balance(ledger, "b").incoming == 800
    with pytest.raises(InsufficientCredit):
        post_transfer(ledger, gift("t1", 201))
    assert void_pending(ledger, "h1", reason="gave up", now=later(1))
    assert not void_pending(ledger, "h1", reason="gave up again", now=later(2))
    assert balance(ledger, "a").available == 1000
    assert not is_pending(ledger, "h1")
    assert verify(ledger).is_whole


def test_only_a_hold_can_be_given_up(ledger: Connection) -> None:
    with pytest.raises(NotFound):
        void_pending(ledger, "d1", reason="not pending", now=NOW)


def test_opening_an_account_again_as_something_else_is_a_conflict(ledger: Connection) -> None:
    assert not open_account(ledger, id="a", kind=AccountKind.BUCKET, owner="a", now=later(9))
    with pytest.raises(Conflict):
        open_account(ledger, id="a", kind=AccountKind.BUCKET, owner="b", now=NOW)


TAMPERINGS = {
    "amount": "UPDATE ledger_transfers SET amount = amount + 1 WHERE id = 't1'",
    "both amounts": "UPDATE ledger_transfers SET amount = 301 WHERE id = 't1'",
    "sides swapped": "UPDATE ledger_transfers SET debit = 'b', credit = 'a' WHERE id = 't1'",
    "reason": "UPDATE ledger_transfers SET reason = 'better' WHERE id = 't1'",
    "moment": "UPDATE ledger_transfers SET at = '2020-01-01 00:00:00.000000' WHERE id = 't1'",
    "id": "UPDATE ledger_transfers SET id = 't9' WHERE id = 't1'",
    "phase": "UPDATE ledger_transfers SET phase = 'single' WHERE id = 'h1'",
    "asset": "UPDATE ledger_transfers SET asset = 'usd_cents' WHERE id = 't1'",
    "digest": "UPDATE ledger_transfers SET digest = digest - 1 WHERE id = 't1'",
    "transfer removed": "DELETE FROM ledger_transfers WHERE id = 't1'",
    "resolution removed": "DELETE FROM ledger_transfers WHERE id = 'h2:void'",
    "resolution made larger": "UPDATE ledger_transfers SET amount = 51 WHERE id = 'h2:void'",
    "resolution of something else": "UPDATE ledger_transfers SET pending_id = 't1' WHERE id = 'h2:void'",
    "balance up": "UPDATE ledger_accounts SET credits_posted = credits_posted + 5 WHERE id = 'b'",
    "balance moved": "UPDATE ledger_accounts SET credits_posted = credits_posted"
    " + CASE id WHEN 'b' THEN 5 ELSE -5 END WHERE id IN ('a', 'b')",
    "hold forgotten": "UPDATE ledger_accounts SET debits_pending = 0 WHERE id = 'a'",
    "count": "UPDATE ledger_accounts SET transfers = 0 WHERE id = 'b'",
    "account digest": "UPDATE ledger_accounts SET digest = 0 WHERE id = 'b'",
    "account removed": "DELETE FROM ledger_accounts WHERE id = 'b'",
    "allowed to overdraw": "UPDATE ledger_accounts SET may_overdraw = true WHERE id = 'a'",
    "pending removed": "DELETE FROM ledger_pendings WHERE id = 'h1'",
    "pending made smaller": "UPDATE ledger_pendings SET amount = 1 WHERE id = 'h1'",
    "pending invented": "INSERT INTO ledger_pendings (id, debit, amount) VALUES ('h9', 'a', 1)",
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_verify_finds(ledger: Connection, how: str) -> None:
    post_transfer(ledger, gift("t1", 300))
    post_transfer(ledger, gift("h1", 100, phase=Phase.PENDING))
    post_transfer(ledger, gift("h2", 50, phase=Phase.PENDING))
    void_pending(ledger, "h2", reason="gave up", now=NOW)
    assert verify(ledger).is_whole
    assert ledger.execute(text(TAMPERINGS[how])).rowcount
    assert not verify(ledger).is_whole


def test_the_database_itself_refuses_a_bucket_below_zero(ledger: Connection) -> None:
    with pytest.raises(Exception, match="covered"):
        ledger.execute(text("UPDATE ledger_accounts SET debits_posted = 1001 WHERE id = 'a'"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reason": 'quote " slash \\ ümlaut \u2028 \ud800'},
        {"data": {"b": 1, "a": ["ü", None, True]}},
        {"at": NOW.replace(microsecond=0)},
        {"at": NOW.replace(microsecond=120).astimezone(timezone(timedelta(hours=3)))},
        {"phase": Phase.POST, "pending_id": "t0"},
    ],
)
def test_a_digest_is_that_of_the_canonical_text(changes: dict[str, object]) -> None:
    """Written down in every ledger there is: it may become quicker, never another."""
    transfer = gift("t1", 5, **changes)
    text = canonical((*transfer.content(), transfer.at.astimezone(UTC).isoformat()))
    wanted = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % DIGEST_MODULUS
    assert transfer.digest() == wanted


@pytest.mark.parametrize("microsecond", [0, 7, 120_000])
def test_what_was_written_is_read_and_proven_as_it_was(ledger: Connection, microsecond: int) -> None:
    at = NOW.replace(microsecond=microsecond)
    made = gift("t1", 5, at=at, data={"b": [1, None], "a": "ü"})
    post_transfer(ledger, made)
    assert find_transfer(ledger, "t1") == made
    assert [row.as_transfer() for row in read_transfers(ledger)][-1] == made
    assert verify(ledger).is_whole
