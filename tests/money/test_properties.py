"""Any schedule of credits, holds, meters, settlements, crashes and retries: exact to the sat, sums to zero.

The model keeps its own list of what ran when, and charges it once, at the end. It knows by its own sums who
ran anything without a whole sat left that was not held: only then can charges end. From then on what ran is
the most that is charged, and usage, which is counted apart, is exactly what was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, Engine

from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.amounts import NSATS_PER_MSAT, NSATS_PER_SAT
from sandboxer.money.buckets import credit, open_bucket, receipt, settle_account, spend
from sandboxer.money.metering import (
    begin_charge,
    change_rate,
    charge_once,
    close_meter,
    hold_slice,
    open_holds,
    release,
)
from sandboxer.money.policy import Use
from sandboxer.money.reconciler import attend_due, next_due
from sandboxer.money.records import bucket_id
from sandboxer.money.statements import account_view, usage
from sandboxer.money.verification import verify
from tests.support.money import ALICE, BOB, NOW, wipe

OWNERS = (ALICE, BOB)
owners = st.sampled_from(OWNERS)
rates = st.sampled_from([0, 1, 7, 999, 1000, 1001, 123_457])
waits = st.one_of(st.integers(0, 3_000_000), st.integers(0, 10**10))


@dataclass
class Run:
    owner: str
    rate: int
    began: datetime
    use: Use = Use.RUNNING


@dataclass
class Model:
    """What should be true: who put in what, and what ran when."""

    came_in: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OWNERS, 0))
    used: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OWNERS, 0))
    runs: dict[str, Run] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)
    # Who once ran something without a sat to spend: its charges may have ended.
    dried: set[str] = field(default_factory=set)

    def end(self, meter: str, at: datetime) -> None:
        run = self.runs[meter]
        self.used[run.owner] += run.rate * ((at - run.began) // timedelta(microseconds=1))
        run.began = at

    def owed(self, owner: str, now: datetime) -> int:
        running = sum(
            run.rate * ((now - run.began) // timedelta(microseconds=1))
            for run in self.runs.values()
            if run.owner == owner
        )
        return self.used[owner] + running

    def note_dry(self, owner: str, held: int, now: datetime) -> None:
        """Asked after every step, so before anybody pays, lets go of a hold or is charged less."""
        left = (self.came_in[owner] - held) * NSATS_PER_SAT - self.owed(owner, now)
        is_running = any(run.owner == owner and run.rate for run in self.runs.values())
        if is_running and left < NSATS_PER_SAT:
            self.dried.add(owner)


class Crash(Exception):
    """The process died before the commit."""


class Money(RuleBasedStateMachine):
    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.model = Model()
        self.count = 0
        self.past: list[Callable[[Connection], object]] = []
        with self.engine.begin() as conn:
            wipe(conn)
            for owner in OWNERS:
                open_bucket(conn, owner, now=NOW)

    def act(self, what: Callable[[Connection], object], *, crashes: bool, again: bool = True) -> None:
        """Perhaps die first and lose it all; then do it; then perhaps be asked again."""
        if crashes:
            with suppress(Crash), self.engine.begin() as conn:
                what(conn)
                raise Crash
        with self.engine.begin() as conn:
            what(conn)
        if again:
            self.past.append(what)

    def new(self, word: str) -> str:
        self.count += 1
        return f"{word}{self.count}"

    @rule(us=waits)
    def time_passes(self, us: int) -> None:
        self.now += timedelta(microseconds=us)

    @rule(owner=owners, sats=st.integers(1, 100_000), crashes=st.booleans())
    def someone_pays(self, owner: str, sats: int, crashes: bool) -> None:
        id, now = self.new("c"), self.now
        self.act(lambda conn: credit(conn, owner, sats, id=id, reason="paid", now=now), crashes=crashes)
        self.model.came_in[owner] += sats

    @rule(owner=owners, rate=rates, crashes=st.booleans())
    def a_create_holds(self, owner: str, rate: int, crashes: bool) -> None:
        id, now = self.new("h"), self.now
        try:
            self.act(
                lambda conn: hold_slice(conn, owner, id=id, rate=rate, reason="create", now=now),
                crashes=crashes,
            )
        except InsufficientCredit:
            return
        if rate:
            self.model.holds[id] = owner

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data(), crashes=st.booleans(), rate=rates, is_ready=st.booleans())
    def a_create_ends(self, data: st.DataObject, crashes: bool, rate: int, is_ready: bool) -> None:
        hold = data.draw(st.sampled_from(sorted(self.model.holds)))
        owner, now = self.model.holds.pop(hold), self.now
        if not is_ready:
            self.act(lambda conn: release(conn, owner, hold, reason="failed", now=now), crashes=crashes)
            return
        meter = self.new("m")
        self.act(
            lambda conn: begin_charge(
                conn, owner, hold_id=hold, meter_id=meter, subject=f"sbx_{meter}", rate=rate, now=now
            ),
            crashes=crashes,
        )
        self.model.runs[meter] = Run(owner, rate, now)

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), rate=rates, use=st.sampled_from(list(Use)), crashes=st.booleans(), back=waits)
    def a_state_changes(self, data: st.DataObject, rate: int, use: Use, crashes: bool, back: int) -> None:
        meter = data.draw(st.sampled_from(sorted(self.model.runs)))
        run, now = self.model.runs[meter], self.now
        at = max(run.began, now - timedelta(microseconds=back))
        self.count += 1
        step = self.count
        self.act(
            lambda conn: change_rate(conn, meter, use=use, rate=rate, now=now, at=at, step=step),
            crashes=crashes,
        )
        if (rate, use) != (run.rate, run.use):
            self.model.end(meter, at)
        run.rate, run.use = rate, use

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), crashes=st.booleans(), back=waits)
    def a_sandbox_ends(self, data: st.DataObject, crashes: bool, back: int) -> None:
        meter = data.draw(st.sampled_from(sorted(self.model.runs)))
        now = self.now
        at = max(self.model.runs[meter].began, now - timedelta(microseconds=back))
        self.act(lambda conn: close_meter(conn, meter, now=now, at=at), crashes=crashes)
        self.model.end(meter, at)
        del self.model.runs[meter]

    @rule(owner=owners, msats=st.integers(1, 5000), crashes=st.booleans())
    def bytes_leave(self, owner: str, msats: int, crashes: bool) -> None:
        id, now = self.new("e"), self.now
        self.act(
            lambda conn: charge_once(
                conn, owner, id=id, subject="sbx_x", use=Use.EGRESS, msats=msats, now=now
            ),
            crashes=crashes,
        )
        self.model.used[owner] += msats * NSATS_PER_MSAT

    @rule(sats=st.integers(1, 50_000), crashes=st.booleans())
    def alice_gives_to_bob(self, sats: int, crashes: bool) -> None:
        id, now = self.new("g"), self.now

        def give(conn: Connection) -> None:
            spend(conn, ALICE, sats, id=id, to=bucket_id(BOB), kind="gift", reason="gift", now=now)
            settle_account(conn, BOB, now=now)

        try:
            self.act(give, crashes=crashes)
        except InsufficientCredit:
            return
        self.model.came_in[ALICE] -= sats
        self.model.came_in[BOB] += sats

    @rule(owner=owners, sats=st.integers(1, 1000))
    def a_receipt_arrives(self, owner: str, sats: int) -> None:
        now = self.now
        self.act(lambda conn: receipt(conn, owner, sats, now=now), crashes=False, again=False)

    @rule()
    def the_timer_fires(self) -> None:
        with self.engine.begin() as conn:
            moment = next_due(conn)
        if moment is not None and moment < self.now + timedelta(days=2):
            self.now = max(self.now, moment)
            now = self.now
            self.act(lambda conn: attend_due(conn, now=now), crashes=False, again=False)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def an_old_call_is_retried(self, data: st.DataObject) -> None:
        """In any order, however late: none of it happens again."""
        what = data.draw(st.sampled_from(self.past))
        with suppress(InsufficientCredit), self.engine.begin() as conn:
            what(conn)

    @rule(owner=owners)
    def someone_settles_and_looks(self, owner: str) -> None:
        with self.engine.begin() as conn:
            view = account_view(conn, owner, now=self.now)
            settle_account(conn, owner, now=self.now)
            again = account_view(conn, owner, now=self.now)
        assert view.balance - view.debt == again.balance - again.debt

    @invariant()
    def the_ledger_is_whole_and_every_sat_is_accounted_for(self) -> None:
        with self.engine.begin() as conn:
            proof = verify(conn)
            assert proof.is_whole, proof.faults
            assert set(proof.sums.values()) <= {0}
            for owner in OWNERS:
                view = account_view(conn, owner, now=self.now)
                charged = self.model.came_in[owner] - (view.balance - view.debt)
                owed = self.model.owed(owner, self.now) // NSATS_PER_SAT
                holds = open_holds(conn, owner)
                self.model.note_dry(owner, sum(hold.sats for hold in holds), self.now)
                assert charged <= owed if owner in self.model.dried else charged == owed
                assert {hold.id for hold in holds} == {
                    id for id, of in self.model.holds.items() if of == owner
                }

    def teardown(self) -> None:
        """Usage told by thing and kind adds up to what was charged, to the nanosat."""
        far = self.now + timedelta(microseconds=1)
        with self.engine.begin() as conn:
            for owner in OWNERS:
                lines = usage(conn, owner, since=NOW, until=far, now=self.now)
                used, view = sum(line.nsats for line in lines), account_view(conn, owner, now=self.now)
                assert used // NSATS_PER_SAT == self.model.came_in[owner] - (view.balance - view.debt)
                if owner not in self.model.dried:
                    assert used == self.model.owed(owner, self.now)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_any_schedule_charges_exactly_rate_times_time(engine: Engine, times: int) -> None:
    class Here(Money):
        pass

    Here.engine = engine
    is_sqlite = engine.dialect.name == "sqlite"
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Here,
        settings=settings(
            max_examples=(25 if is_sqlite else 8) * times,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
