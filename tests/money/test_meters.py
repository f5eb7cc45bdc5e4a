"""Pure decisions: what is owed, when it runs dry, what becomes of it then, what things cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.money.amounts import NSATS_PER_SAT, sats_for
from sandboxer.money.policy import (
    Flow,
    GracePolicy,
    Health,
    Standing,
    accrue,
    change,
    collect,
    dry_at,
    is_receipt_enough,
    judge,
    owed,
    reap_at,
)
from tests.support.money import NOW, later


def settle(flow: Flow, *, now: datetime) -> tuple[int, Flow]:
    """Whole sats owed at `now`, and the flow that carries the rest; the same flow if no whole sat is owed."""
    sats, settled = collect(accrue(flow, now=now))
    return (sats, settled) if sats else (0, flow)


moments = st.integers(0, 10**12).map(lambda us: NOW + timedelta(microseconds=us))
rates = st.integers(0, 10**9)


@given(rate=rates, cuts=st.lists(moments), end=moments)
def test_settling_at_any_moments_charges_the_same_as_once_at_the_end(
    rate: int, cuts: list[datetime], end: datetime
) -> None:
    once, rest = settle(Flow(rate=rate, settled_at=NOW), now=end)
    flow, sum_ = Flow(rate=rate, settled_at=NOW), 0
    for cut in [*sorted(cut for cut in cuts if cut <= end), end]:
        sats, flow = settle(flow, now=cut)
        sum_ += sats
    assert sum_ == once
    assert owed(flow, now=end) == owed(rest, now=end)
    assert 0 <= owed(flow, now=end) < NSATS_PER_SAT


@given(steps=st.lists(st.tuples(rates, st.integers(0, 10**10)), max_size=20))
def test_rate_times_time_is_charged_exactly(steps: list[tuple[int, int]]) -> None:
    flow, charged, now, truth = Flow(rate=0, settled_at=NOW), 0, NOW, Fraction(0)
    for rate, us in steps:
        sats, flow = collect(change(accrue(flow, now=now), by=rate - flow.rate, at=now))
        charged += sats
        now += timedelta(microseconds=us)
        truth += Fraction(rate, 1000) * Fraction(us, 10**6)
    sats, flow = collect(accrue(flow, now=now))
    assert charged + sats == truth // 1


@given(rate=rates, died=moments, noticed=moments)
def test_an_end_noticed_late_gives_back_what_was_charged_too_much(
    rate: int, died: datetime, noticed: datetime
) -> None:
    died, noticed = min(died, noticed), max(died, noticed)
    in_time, _ = settle(Flow(rate=rate, settled_at=NOW), now=died)
    charged, flow = collect(accrue(Flow(rate=rate, settled_at=NOW), now=noticed))
    back, flow = collect(change(flow, by=-rate, at=died))
    assert charged + back == in_time
    assert flow.rate == 0


@given(sats=st.integers(0, 10**9), rate=st.integers(1, 10**6), carried=st.integers(0, NSATS_PER_SAT - 1))
def test_dry_is_the_first_microsecond_at_which_all_is_used_up(sats: int, rate: int, carried: int) -> None:
    flow = Flow(rate=rate, settled_at=NOW, carried=carried)
    dry = dry_at(sats, flow)
    assert dry is not None
    if dry.year < 9000:
        assert owed(flow, now=dry) >= sats * NSATS_PER_SAT
        before = dry - timedelta(microseconds=1)
        assert before < NOW or owed(flow, now=before) < sats * NSATS_PER_SAT


def test_what_does_not_flow_never_runs_dry() -> None:
    assert dry_at(0, Flow(rate=0, settled_at=NOW)) is None


def test_a_clock_that_goes_back_owes_nothing() -> None:
    flow = Flow(rate=1000, settled_at=NOW)
    assert settle(flow, now=later(-5)) == (0, flow)


def test_a_thousand_short_lives_are_not_free() -> None:
    """1 msat/s for a tenth of a second each: a tenth of a sat in all is carried, not dropped."""
    flow = Flow(rate=0, settled_at=NOW)
    now = NOW
    for _ in range(1000):
        flow = change(accrue(flow, now=now), by=1, at=now)
        now += timedelta(milliseconds=100)
        flow = change(accrue(flow, now=now), by=-1, at=now)
    assert flow.carried == NSATS_PER_SAT // 10


def test_holds_round_up() -> None:
    assert sats_for(1, timedelta(microseconds=1)) == 1
    assert sats_for(1000, timedelta(minutes=10)) == 600
    assert sats_for(0, timedelta(days=1)) == 0


def flow(rate: int = 1000) -> Flow:
    return Flow(rate=rate, settled_at=NOW)


def test_a_dry_bucket_enters_grace_once_and_is_reaped_when_the_window_is_over() -> None:
    entered = judge(Health(), spendable=0, flow=flow(), now=NOW)
    assert entered.health.standing is Standing.GRACE
    assert entered.due_at == later(60)
    assert [t.kind for t in entered.tidings] == ["account.dry"]
    still = judge(entered.health, spendable=0, flow=flow(), now=later(59))
    assert still.health == entered.health
    assert not still.tidings
    over = judge(entered.health, spendable=0, flow=flow(), now=later(60))
    assert over.health.standing is Standing.REAPED
    assert [t.kind for t in over.tidings] == ["account.reaped"]
    assert over.due_at is None
    assert judge(over.health, spendable=0, flow=flow(), now=later(99)).health.standing is Standing.REAPED


def test_receipts_restart_the_window_but_not_past_the_cap() -> None:
    assert reap_at(NOW, None) == later(60)
    assert reap_at(NOW, later(50)) == later(110)
    assert reap_at(NOW, later(590)) == later(600)


def test_a_receipt_must_cover_a_minute() -> None:
    assert not is_receipt_enough(59, flow())
    assert is_receipt_enough(60, flow())
    assert not is_receipt_enough(0, flow(rate=0))


@pytest.mark.parametrize("standing", [Standing.GRACE, Standing.REAPED])
def test_money_brings_it_back(standing: Standing) -> None:
    back = judge(Health(standing=standing, grace_began_at=NOW), spendable=10_000, flow=flow(), now=later(9))
    assert back.health.standing is Standing.ALIVE
    assert [t.kind for t in back.tidings] == ["account.funded"]


def test_grace_without_a_meter_ends_silently_and_reaped_waits_for_money() -> None:
    grace = Health(standing=Standing.GRACE, grace_began_at=NOW)
    ended = judge(grace, spendable=0, flow=flow(rate=0), now=NOW)
    assert (ended.health.standing, ended.tidings) == (Standing.ALIVE, ())
    reaped = judge(Health(standing=Standing.REAPED), spendable=0, flow=flow(rate=0), now=NOW)
    assert reaped.health.standing is Standing.REAPED


def test_each_warning_is_given_once_and_again_after_a_top_up() -> None:
    health, reported = Health(), []
    for second in (0, 1, 400, 500, 950, 951):
        verdict = judge(health, spendable=4000 - 3000, flow=flow(), now=later(second))
        health = verdict.health
        reported += [t.data["seconds_left"] for t in verdict.tidings]
    assert reported == [1000, 600, 50]
    topped = judge(health, spendable=9000, flow=flow(), now=later(952))
    assert not topped.tidings
    assert topped.due_at == later(9000 - 3600)
    again = judge(topped.health, spendable=9000, flow=flow(), now=later(9000 - 3600))
    assert [t.kind for t in again.tidings] == ["account.low"]


def test_the_next_moment_is_the_next_warning_or_the_end() -> None:
    policy = GracePolicy(warn_s=(60,))
    verdict = judge(Health(), spendable=100, flow=flow(), now=NOW, policy=policy)
    assert verdict.due_at == later(40)
    verdict = judge(verdict.health, spendable=100, flow=flow(), now=later(40), policy=policy)
    assert verdict.due_at == later(100)
