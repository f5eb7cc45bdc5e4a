"""Credits, spending, holds, meters, grace and debt, in transactions, on both databases."""

from __future__ import annotations

from fractions import Fraction

import pytest
from sqlalchemy import Connection, select, text

from sandboxer.kernel.errors import Conflict, InsufficientCredit, NotFound
from sandboxer.money.buckets import (
    credit,
    load_bucket,
    open_bucket,
    receipt,
    settle_account,
    spend,
    write_off,
)
from sandboxer.money.ledger import INCOME, LOSS, LockedRate, balance, exchange, open_account, post_transfer
from sandboxer.money.metering import (
    begin_charge,
    change_rate,
    charge_once,
    close_meter,
    find_meter,
    hold_slice,
    open_holds,
    open_meter,
    release,
)
from sandboxer.money.policy import Standing, Use
from sandboxer.money.records import bucket_id
from sandboxer.money.transfers import AccountKind, Asset, Transfer
from sandboxer.money.verification import verify
from sandboxer.observe.events import events
from tests.support.money import ALICE, BOB, NOW, fund, later, paid_before

# msats per second: one sat a second.
SAT_S = 1000


def run_meter(conn: Connection, rate: int = SAT_S, *, at: float = 0) -> None:
    open_meter(conn, ALICE, id="m1", subject="sbx_1", use=Use.RUNNING, rate=rate, now=later(at), at=later(at))


def emitted(conn: Connection) -> list[str]:
    return [kind for (kind,) in conn.execute(select(events.c.kind).order_by(events.c.id))]


def sats(conn: Connection, owner: str = ALICE) -> tuple[int, int, int]:
    bucket = load_bucket(conn, owner)
    return bucket.posted, bucket.held, bucket.debt


def test_a_create_holds_ten_minutes_and_frees_them_for_the_meter(conn: Connection) -> None:
    fund(conn, ALICE, 10_000)
    held = hold_slice(conn, ALICE, id="hold:sbx_1", rate=SAT_S, reason="create", now=NOW)
    assert held is not None
    assert held.sats == 600
    assert load_bucket(conn, ALICE).available == 9400
    begin_charge(
        conn,
        ALICE,
        hold_id="hold:sbx_1",
        meter_id="m1",
        subject="sbx_1",
        rate=SAT_S,
        now=later(2),
        ready_at=later(1),
    )
    bucket = settle_account(conn, ALICE, now=later(11))
    assert (bucket.posted, bucket.held, bucket.reserved, bucket.available) == (9990, 0, 600, 9390)
    assert verify(conn).is_whole


def test_nothing_is_charged_for_a_failed_provision(conn: Connection) -> None:
    fund(conn, ALICE, 10_000)
    hold_slice(conn, ALICE, id="hold:sbx_1", rate=SAT_S, reason="create", now=NOW)
    assert [hold.id for hold in open_holds(conn, ALICE)] == ["hold:sbx_1"]
    for _ in range(2):
        release(conn, ALICE, "hold:sbx_1", reason="provision failed", now=later(30))
    release(conn, ALICE, "hold:never", reason="never made", now=later(30))
    assert sats(conn) == (10_000, 0, 0)
    assert not open_holds(conn, ALICE)
    assert verify(conn).is_whole


def test_a_poor_agent_can_start_with_all_it_has_and_a_second_create_is_refused(conn: Connection) -> None:
    fund(conn, ALICE, 30)
    held = hold_slice(conn, ALICE, id="h1", rate=SAT_S, reason="create", now=NOW)
    assert held is not None
    assert held.sats == 30
    with pytest.raises(InsufficientCredit) as caught:
        hold_slice(conn, ALICE, id="h2", rate=SAT_S, reason="create", now=NOW)
    assert caught.value.facts["available"] == 0
    assert hold_slice(conn, ALICE, id="h1", rate=SAT_S, reason="create", now=NOW) == held
    assert hold_slice(conn, ALICE, id="h3", rate=0, reason="entitled", now=NOW) is None


def test_accrued_sats_cannot_be_spent_twice(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    fund(conn, BOB, 0)
    run_meter(conn)
    words = {"to": bucket_id(BOB), "kind": "gift", "reason": "test"}
    with pytest.raises(InsufficientCredit) as caught:
        spend(conn, ALICE, 400, id="s1", now=later(100), **words)
    assert caught.value.facts["available"] == 300
    spend(conn, ALICE, 300, id="s1", now=later(100), **words)
    spend(conn, ALICE, 300, id="s1", now=later(101), **words)
    with pytest.raises(Conflict):
        spend(conn, ALICE, 299, id="s1", now=later(101), **words)
    assert sats(conn) == (599, 0, 0)
    assert sats(conn, BOB) == (300, 0, 0)
    assert verify(conn).is_whole


def test_the_rate_changes_with_the_state_and_each_time_is_charged_at_its_own(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    run_meter(conn)
    change_rate(conn, "m1", use=Use.FROZEN, rate=100, now=later(10), step=2)
    change_rate(conn, "m1", use=Use.RUNNING, rate=SAT_S, now=later(20), step=3)
    change_rate(conn, "m1", use=Use.STORED, rate=1, now=later(25), step=4)
    close_meter(conn, "m1", now=later(1025))
    close_meter(conn, "m1", now=later(9999))
    # 10 + 1 + 5 + 1
    assert sats(conn) == (983, 0, 0)
    assert load_bucket(conn, ALICE).flow.rate == 0
    assert verify(conn).is_whole


def test_a_late_step_changes_nothing(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    run_meter(conn)
    change_rate(conn, "m1", use=Use.FROZEN, rate=0, now=later(10), step=2)
    change_rate(conn, "m1", use=Use.RUNNING, rate=SAT_S, now=later(20), step=3)
    change_rate(conn, "m1", use=Use.FROZEN, rate=0, now=later(21), step=2)
    meter = find_meter(conn, "m1")
    assert meter is not None
    assert (meter.use, meter.rate) == (Use.RUNNING, SAT_S)
    close_meter(conn, "m1", now=later(30))
    run_meter(conn, at=31)
    change_rate(conn, "m1", use=Use.FROZEN, rate=5, now=later(32), step=1)
    with pytest.raises(Conflict):
        change_rate(conn, "m1", use=Use.FROZEN, rate=5, now=later(32))
    assert settle_account(conn, ALICE, now=later(999)).posted == 980


def test_a_sandbox_found_dead_gets_the_time_back(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    run_meter(conn)
    assert settle_account(conn, ALICE, now=later(500)).posted == 500
    close_meter(conn, "m1", at=later(100), now=later(501))
    assert sats(conn) == (900, 0, 0)
    assert verify(conn).is_whole


def test_time_given_back_pays_a_debt_first(conn: Connection) -> None:
    fund(conn, ALICE, 100)
    run_meter(conn)
    # Nobody looked for 50 s; ten of them are the grace it had earned, and the rest is nobody's debt.
    assert settle_account(conn, ALICE, now=later(150)).debt == 10
    close_meter(conn, "m1", at=later(90), now=later(151))
    assert sats(conn) == (10, 0, 0)
    assert verify(conn).is_whole


def test_egress_is_charged_once_and_carries_its_thousandths(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    for id in ("e1", "e2", "e1"):
        charge_once(conn, ALICE, id=id, subject="sbx_1", use=Use.EGRESS, msats=600, now=NOW)
    assert sats(conn) == (999, 0, 0)
    assert load_bucket(conn, ALICE).flow.carried == 200_000_000
    assert verify(conn).is_whole


def test_running_dry_is_told_then_reaped_and_the_debt_comes_first(conn: Connection) -> None:
    paid_before(conn, ALICE)
    fund(conn, ALICE, 100)
    run_meter(conn)
    assert emitted(conn) == ["account.low"]
    assert load_bucket(conn, ALICE).dry_at == later(100)
    grace = settle_account(conn, ALICE, now=later(100))
    assert grace.health.standing is Standing.GRACE
    assert grace.due_at == later(160)
    assert grace.available == 0
    reaped = settle_account(conn, ALICE, now=later(160))
    assert reaped.health.standing is Standing.REAPED
    close_meter(conn, "m1", now=later(161))
    assert sats(conn) == (0, 0, 60)
    with pytest.raises(InsufficientCredit):
        hold_slice(conn, ALICE, id="h", rate=1, reason="create", now=later(162))
    credit(conn, ALICE, 50, id="c2", reason="paid", now=later(200))
    assert sats(conn) == (0, 0, 10)
    assert load_bucket(conn, ALICE).health.standing is Standing.REAPED
    for _ in range(2):
        credit(conn, ALICE, 50, id="c3", reason="paid", now=later(201))
    assert sats(conn) == (40, 0, 0)
    assert emitted(conn) == ["account.low", "account.dry", "account.reaped", "account.funded"]
    assert verify(conn).is_whole


@pytest.mark.parametrize("looks", [(130,), ()])
def test_who_owes_gets_no_grace_again_from_another_meter(conn: Connection, looks: tuple[int, ...]) -> None:
    paid_before(conn, ALICE)
    fund(conn, ALICE, 100)
    run_meter(conn)
    for second in looks:
        assert settle_account(conn, ALICE, now=later(second)).health.standing is Standing.GRACE
    close_meter(conn, "m1", now=later(140))
    assert sats(conn) == (0, 0, 40)
    open_meter(conn, ALICE, id="m2", subject="sbx_2", use=Use.RUNNING, rate=SAT_S, now=later(200))
    assert settle_account(conn, ALICE, now=later(999)).health.standing is Standing.REAPED
    assert sats(conn) == (0, 0, 40)
    # Whoever pays the debt goes on.
    credit(conn, ALICE, 140, id="c9", reason="paid", now=later(999))
    assert settle_account(conn, ALICE, now=later(1009)).posted == 90
    assert verify(conn).is_whole


def test_a_receipt_restarts_grace_within_its_cap(conn: Connection) -> None:
    paid_before(conn, ALICE)
    fund(conn, ALICE, 1)
    run_meter(conn)
    settle_account(conn, ALICE, now=later(1))
    assert not receipt(conn, ALICE, 59, now=later(2))
    assert receipt(conn, ALICE, 60, now=later(51))
    assert load_bucket(conn, ALICE).due_at == later(111)
    for second in range(100, 591, 49):
        receipt(conn, ALICE, 60, now=later(second))
    assert load_bucket(conn, ALICE).due_at == later(601)
    open_bucket(conn, BOB, now=NOW)
    assert not receipt(conn, BOB, 60, now=NOW)


def test_grace_is_a_tenth_of_what_was_ever_paid_and_none_for_a_newcomer(conn: Connection) -> None:
    fund(conn, ALICE, 9)
    run_meter(conn)
    newcomer = settle_account(conn, ALICE, now=later(9))
    assert newcomer.health.standing is Standing.REAPED
    # However late it is noticed: what ran on was not his to pay.
    close_meter(conn, "m1", now=later(30))
    assert sats(conn) == (0, 0, 0)
    fund(conn, BOB, 250)
    open_meter(conn, BOB, id="m2", subject="sbx_2", use=Use.RUNNING, rate=SAT_S, now=NOW)
    grace = settle_account(conn, BOB, now=later(250))
    assert (grace.health.standing, grace.due_at) == (Standing.GRACE, later(275))
    # Whoever is seen to pay gets the whole window.
    assert receipt(conn, BOB, 60, now=later(270))
    assert load_bucket(conn, BOB).due_at == later(330)
    assert verify(conn).is_whole


def test_what_was_given_away_earns_no_grace(conn: Connection) -> None:
    fund(conn, ALICE, 10_000)
    open_bucket(conn, BOB, now=NOW)
    spend(conn, ALICE, 9_999, id="g", to=bucket_id(BOB), kind="gift", reason="x", now=NOW)
    run_meter(conn)
    assert settle_account(conn, ALICE, now=later(1)).health.standing is Standing.REAPED


def test_fifty_newcomers_with_dust_run_for_their_dust_and_no_longer(conn: Connection) -> None:
    crowd, dust = [f"acc_{n}" for n in range(50)], 1
    for owner in crowd:
        fund(conn, owner, dust)
        open_meter(conn, owner, id=owner, subject=owner, use=Use.RUNNING, rate=SAT_S, now=NOW)
    ran, running = 0.0, [*crowd]
    for second in range(1, 130):
        for owner in [*running]:
            bucket = settle_account(conn, owner, now=later(second))
            if bucket.health.standing is Standing.REAPED:
                close_meter(conn, owner, now=later(second), at=bucket.died_at)
                running.remove(owner)
                ran += second
    assert ran <= 50 * dust
    assert not running
    assert sum(load_bucket(conn, owner).debt for owner in crowd) == 0
    assert balance(conn, INCOME).posted == 50 * dust
    assert verify(conn).is_whole


def test_what_cannot_be_collected_becomes_a_loss(conn: Connection) -> None:
    fund(conn, ALICE, 10)
    run_meter(conn)
    close_meter(conn, "m1", now=later(40))
    assert write_off(conn, ALICE, reason="retention over", now=later(41)) == 1
    assert write_off(conn, ALICE, reason="retention over", now=later(41)) == 0
    assert sats(conn) == (0, 0, 0)
    assert balance(conn, LOSS).posted == -1
    assert balance(conn, INCOME).posted == 11
    assert verify(conn).is_whole


def test_running_meters_do_not_eat_what_is_held_for_others(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    hold_slice(conn, ALICE, id="h1", rate=SAT_S, reason="create", now=NOW)
    run_meter(conn)
    bucket = settle_account(conn, ALICE, now=later(430))
    assert (bucket.posted, bucket.held, bucket.debt) == (600, 600, 30)
    assert bucket.health.standing is Standing.GRACE
    release(conn, ALICE, "h1", reason="gave up", now=later(430))
    assert sats(conn) == (570, 0, 0)
    assert load_bucket(conn, ALICE).health.standing is Standing.ALIVE
    assert verify(conn).is_whole


def test_looking_writes_nothing_while_nothing_is_owed(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    run_meter(conn, rate=1)
    before = load_bucket(conn, ALICE)
    assert settle_account(conn, ALICE, now=later(0.5)) == before
    assert verify(conn).transfers == 1


def test_meters_and_buckets_are_found_by_name(conn: Connection) -> None:
    fund(conn, ALICE, 1000)
    fund(conn, BOB, 1)
    run_meter(conn)
    with pytest.raises(NotFound):
        settle_account(conn, "acc_nobody", now=NOW)
    with pytest.raises(NotFound):
        close_meter(conn, "m9", now=NOW)
    with pytest.raises(Conflict):
        open_meter(conn, BOB, id="m1", subject="sbx_1", use=Use.RUNNING, rate=1, now=NOW)


def test_a_gift_card_becomes_sats_by_two_transfers_at_its_locked_rate(conn: Connection) -> None:
    fund(conn, ALICE, 1)
    open_account(conn, id="external:cards", kind=AccountKind.EXTERNAL, asset=Asset.USD_CENTS, now=NOW)
    open_account(conn, id="card:1", kind=AccountKind.CARD, asset=Asset.USD_CENTS, owner=BOB, now=NOW)
    issued = Transfer(
        id="i1",
        debit="external:cards",
        credit="card:1",
        amount=700,
        asset=Asset.USD_CENTS,
        kind="issue",
        reason="sold",
        at=NOW,
    )
    post_transfer(conn, issued)
    rate = LockedRate(sold=Asset.USD_CENTS, bought=Asset.SATS, units=Fraction(31, 3))
    for _ in range(2):
        words = {"debit": "card:1", "credit": bucket_id(ALICE), "reason": "redeemed", "now": NOW}
        assert exchange(conn, id="x1", amount=700, rate=rate, **words) == 7233
    assert balance(conn, "card:1").posted == 0
    assert sats(conn) == (7234, 0, 0)
    proof = verify(conn)
    assert proof.is_whole
    assert proof.sums == {"sats": 0, "usd_cents": 0}


BUCKET_TAMPERINGS = {
    "rate": "UPDATE money_buckets SET rate_msats = 0",
    "carried": "UPDATE money_buckets SET carried_nsats = carried_nsats + 1",
    "settled later": "UPDATE money_buckets SET settled_at = '2027-01-01 00:00:00.000000'",
    "meter's rate": "UPDATE meters SET rate_msats = 1 WHERE closed_at IS NULL",
    "meter removed": "DELETE FROM meters WHERE closed_at IS NULL",
    "segment shortened": "UPDATE meter_segments SET ended_at = began_at",
    "segment removed": "DELETE FROM meter_segments",
    "bucket removed": "DELETE FROM money_buckets",
}


@pytest.mark.parametrize("how", BUCKET_TAMPERINGS)
def test_verify_finds_in_the_meters(conn: Connection, how: str) -> None:
    fund(conn, ALICE, 1000)
    run_meter(conn, rate=777)
    change_rate(conn, "m1", use=Use.FROZEN, rate=333, now=later(10.123))
    settle_account(conn, ALICE, now=later(100))
    assert verify(conn).is_whole
    assert conn.execute(text(BUCKET_TAMPERINGS[how])).rowcount
    assert not verify(conn).is_whole
