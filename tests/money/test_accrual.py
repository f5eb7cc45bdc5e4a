"""How far meters run: the same whoever looks when, over any gaps, and no further than grace was earned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sandboxer.money.amounts import NSATS_PER_SAT
from sandboxer.money.policy import Flow, GracePolicy, Health, Standing, collect
from sandboxer.money.records import Gap, GapKind, Position, charges_end_at, counted_nsats, run_to
from tests.support.money import NOW, later

POLICY = GracePolicy()
seconds = st.integers(0, 4000)


@st.composite
def some_gaps(draw: st.DrawFn) -> list[Gap]:
    moments = sorted(draw(st.sets(seconds, max_size=8)))
    pairs = zip(moments[::2], moments[1::2], strict=False)
    kinds = st.sampled_from(list(GapKind))
    return [Gap(kind=draw(kinds), began_at=later(a), ended_at=later(b)) for a, b in pairs]


class Model:
    """A bucket that settles when it is told to, and has nobody to judge it."""

    def __init__(self, sats: int, rate: int, collected: int, gaps: list[Gap]) -> None:
        self.at = Position(flow=Flow(rate=rate, settled_at=NOW), health=Health())
        self.spendable, self.collected, self.debt, self.gaps = sats, collected, 0, gaps
        self.skipped: list[tuple[object, object]] = []

    def settle(self, second: int) -> None:
        at = run_to(
            later(second),
            flow=self.at.flow,
            health=self.at.health,
            spendable=self.spendable,
            collected=self.collected,
            policy=POLICY,
            gaps=self.gaps,
        )
        sats, flow = collect(at.flow)
        paid = min(sats, self.spendable)
        self.spendable, self.collected = self.spendable - paid, self.collected + paid
        self.debt += sats - paid
        self.skipped += at.skipped
        self.at = replace(at, flow=flow)


@given(st.integers(0, 2000), st.integers(1, 5000), seconds, some_gaps(), st.lists(seconds, max_size=8))
def test_looking_at_any_moments_charges_the_same_as_once_at_the_end(
    sats: int, rate: int, collected: int, gaps: list[Gap], moments: list[int]
) -> None:
    once, often = Model(sats, rate, collected, gaps), Model(sats, rate, collected, gaps)
    for second in sorted(moments):
        often.settle(second)
    for model in (once, often):
        model.settle(4000)
    assert (once.spendable, once.debt, once.at.flow) == (often.spendable, often.debt, often.at.flow)
    assert once.at.health == often.at.health


@given(st.integers(0, 2000), st.integers(1, 5000), seconds, some_gaps())
def test_nobody_owes_more_than_a_tenth_of_what_was_paid_nor_a_minute(
    sats: int, rate: int, collected: int, gaps: list[Gap]
) -> None:
    model = Model(sats, rate, collected, gaps)
    model.settle(4000)
    assert model.debt <= (collected + sats) // 10
    assert model.debt * NSATS_PER_SAT <= rate * 60 * 10**6


@given(st.integers(0, 2000), st.integers(1, 5000), some_gaps())
def test_an_open_meter_counts_exactly_what_its_bucket_is_charged(
    sats: int, rate: int, gaps: list[Gap]
) -> None:
    at = run_to(
        later(4000),
        flow=Flow(rate=rate, settled_at=NOW),
        health=Health(),
        spendable=sats,
        collected=0,
        policy=POLICY,
        gaps=gaps,
    )
    assert counted_nsats(at, rate, NOW, later(4000)) == at.flow.carried


def test_an_outage_is_paid_from_what_is_there_and_grace_waits_for_its_end() -> None:
    gap = Gap(kind=GapKind.OUTAGE, began_at=later(10), ended_at=later(1000))
    model = Model(30, 1000, 1000, [gap])
    model.settle(1000)
    assert (model.spendable, model.debt) == (0, 0)
    assert model.at.health.grace_began_at == later(1000)
    model.settle(1500)
    assert (model.debt, model.at.is_stopped) == (60, True)


def test_grace_stands_still_during_an_outage() -> None:
    gap = Gap(kind=GapKind.OUTAGE, began_at=later(40), ended_at=later(1000))
    model = Model(30, 1000, 1000, [gap])
    model.settle(2000)
    assert (model.debt, model.at.flow.settled_at) == (60, later(1050))


def test_unwitnessed_time_costs_nothing_though_it_could_be_paid() -> None:
    gap = Gap(kind=GapKind.UNWITNESSED, began_at=later(10), ended_at=later(1000))
    model = Model(5000, 1000, 0, [gap])
    model.settle(1010)
    assert model.spendable == 4980


def test_one_that_is_reaped_is_charged_no_further() -> None:
    flow, health = Flow(rate=1000, settled_at=NOW), Health(standing=Standing.REAPED)
    assert charges_end_at(health, spendable=0, flow=flow, collected=10**6, policy=POLICY) == NOW
    at = run_to(later(100), flow=flow, health=health, spendable=0, collected=10**6, policy=POLICY)
    assert (at.flow.carried, at.is_stopped) == (0, True)
    assert at.flow.settled_at + timedelta(seconds=100) == later(100)
