"""Any schedule of cutting, spending, paying in, revoking and ending; and many at once.

Whatever happens: the ledger sums up to zero and is whole; from each child's subtree no more was charged than
its parent gave it and outsiders paid in, less what flowed back; and of outsiders' money nothing flows up.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, Engine, create_engine, select

from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.delegation import Node, below, children, load_key, top_up, tree
from sandboxer.accounts.revocation import expire_due, finish, revoke
from sandboxer.accounts.sums import GIVEN, RETURNED
from sandboxer.kernel.errors import Forbidden, InsufficientCredit, NotFound, Refused
from sandboxer.money.buckets import credit, settle_account
from sandboxer.money.ledger import from_row
from sandboxer.money.metering import begin_charge, close_meter, hold_slice, release
from sandboxer.money.records import bucket_id
from sandboxer.money.tables import ledger_transfers
from sandboxer.money.transfers import Phase
from sandboxer.money.verification import verify
from tests.support.accounts import NOW, child_of, later, rich, sats_of

ROOT = "acc_root"
FUNDS = 1000
picks = st.integers(0, 10**6)
few_sats = st.integers(1, 400)


@dataclass
class Running:
    account: str
    hold: str | None
    meter: str | None


@dataclass
class Schedule:
    conn: Connection
    now: datetime = NOW
    names: list[str] = field(default_factory=lambda: [ROOT])
    running: list[Running] = field(default_factory=list)
    count: int = 0
    outside: Counter[str] = field(default_factory=Counter)

    def next(self) -> int:
        self.count += 1
        return self.count


class Family(RuleBasedStateMachine):
    engine: ClassVar[Engine]

    @initialize()
    def begin(self) -> None:
        # One transaction for the whole schedule, taken back at its end.
        self.conn = self.engine.connect()
        self.transaction = self.conn.begin()
        self.s = Schedule(self.conn)
        rich(self.conn, ROOT, FUNDS)
        a = child_of(self.conn, ROOT, budget_sats=300, depth=3).account
        b = child_of(self.conn, a, budget_sats=100, depth=2).account
        c = child_of(self.conn, ROOT, budget_sats=50, depth=1).account
        self.s.names += [a, b, c]

    def teardown(self) -> None:
        if hasattr(self, "conn"):
            self.transaction.rollback()
            self.conn.close()

    def attempt(self, act: Callable[[], Any]) -> bool:
        try:
            with self.conn.begin_nested():
                act()
        except Refused:
            return False
        return True

    def pick(self, number: int) -> str:
        return self.s.names[number % len(self.s.names)]

    def pick_child(self, number: int) -> str:
        return self.s.names[1 + number % (len(self.s.names) - 1)]

    @rule(parent=picks, budget=st.integers(0, 400), depth=st.integers(0, 2), life=st.none() | few_sats)
    def cut(self, parent: int, budget: int, depth: int, life: int | None) -> None:
        made: list[str] = []
        expires = None if life is None else self.s.now + timedelta(seconds=life)
        wish = {"budget_sats": budget, "depth": depth, "expires_at": expires, "now": self.s.now}
        self.attempt(lambda: made.append(child_of(self.conn, self.pick(parent), **wish).account))
        self.s.names += made

    @rule(child=picks, sats=few_sats)
    def give_more(self, child: int, sats: int) -> None:
        name = self.pick_child(child)
        parent, id = load_key(self.conn, name).parent, str(self.s.next())
        self.attempt(lambda: top_up(self.conn, parent, name, sats, id=id, cut_by="pk", now=self.s.now))

    @rule(child=picks, sats=few_sats)
    def a_stranger_pays(self, child: int, sats: int) -> None:
        name = self.pick_child(child)
        credit(self.conn, name, sats, id=f"gift:{self.s.next()}", reason="paid", now=self.s.now)
        self.s.outside[name] += sats

    @rule(owner=picks, rate=st.integers(1, 40_000))
    def create(self, owner: int, rate: int) -> None:
        name, id = self.pick(owner), self.s.next()
        if name != ROOT and load_key(self.conn, name).state is not KeyState.ACTIVE:
            return
        hold = f"hold:{id}"
        if self.attempt(
            lambda: hold_slice(self.conn, name, id=hold, rate=rate, reason="create", now=self.s.now)
        ):
            self.s.running.append(Running(name, hold, None))
        if id % 3:
            self.become_ready(id, rate)

    def become_ready(self, id: int, rate: int) -> None:
        for one in self.s.running:
            if one.meter is None:
                one.meter = f"meter:{id}:{one.hold}"
                begin_charge(
                    self.conn,
                    one.account,
                    hold_id=one.hold,
                    meter_id=one.meter,
                    subject=f"sbx_{id}",
                    rate=rate,
                    now=self.s.now,
                )

    @rule(seconds=st.floats(0, 60, allow_nan=False))
    def time_passes(self, seconds: float) -> None:
        self.s.now += timedelta(seconds=seconds)
        for name in self.s.names:
            settle_account(self.conn, name, now=self.s.now)

    @rule(number=picks)
    def destroy(self, number: int) -> None:
        if self.s.running:
            self.end_one(self.s.running.pop(number % len(self.s.running)))

    def end_one(self, one: Running) -> None:
        if one.meter is not None:
            close_meter(self.conn, one.meter, now=self.s.now)
        elif one.hold is not None:
            release(self.conn, one.account, one.hold, reason="failed", now=self.s.now)

    @rule(child=picks)
    def revoke(self, child: int) -> None:
        name = self.pick_child(child)
        revoke(self.conn, name, actor="test", reason="asked", now=self.s.now)
        living = {key.account for key in below(self.conn, name, living_only=True)}
        states = {load_key(self.conn, account).state for account in living}
        assert states <= {KeyState.ENDING}

    @rule()
    def expire(self) -> None:
        expire_due(self.conn, now=self.s.now)

    @rule(child=picks)
    def try_to_finish(self, child: int) -> None:
        name = self.pick_child(child)
        self.finish_one(name)

    @rule(child=picks)
    def end_whole_subtree(self, child: int) -> None:
        name = self.pick_child(child)
        steps = revoke(self.conn, name, actor="test", reason="asked", now=self.s.now).steps
        ending = {step.account for step in steps}
        for one in [r for r in self.s.running if r.account in ending]:
            self.s.running.remove(one)
            self.end_one(one)
        for account in dict.fromkeys(step.account for step in steps):
            assert self.finish_one(account)
        assert below(self.conn, name, living_only=True) == []

    def finish_one(self, name: str) -> bool:
        settle_account(self.conn, name, now=self.s.now)
        before, was = sats_of(self.conn, name), load_key(self.conn, name).state
        done = self.attempt(lambda: finish(self.conn, name, now=self.s.now))
        if done and was is not KeyState.ENDED:
            key = load_key(self.conn, name)
            # Outsiders' money stays as far as it was not used up; all else goes up.
            assert key.kept_sats == min(before, self.s.outside[name])
            assert key.returned_sats == before - key.kept_sats
            assert not children(self.conn, name, living_only=True)
        return done

    @invariant()
    def the_ledger_is_whole_and_no_subtree_spent_more_than_it_was_given(self) -> None:
        if not hasattr(self, "s"):
            return
        proof = verify(self.conn)
        assert proof.is_whole, proof.faults
        assert set(proof.sums.values()) <= {0}
        check_subtrees(self.conn, self.s)


def check_subtrees(conn: Connection, s: Schedule) -> None:
    moved = [
        t
        for t in map(from_row, conn.execute(select(ledger_transfers)))
        if t.phase in (Phase.SINGLE, Phase.POST)
    ]
    taken: Counter[str] = Counter()
    for transfer in moved:
        if transfer.kind in ("charge", "repay"):
            taken[transfer.debit] += transfer.amount
        elif transfer.kind == "refund":
            taken[transfer.credit] -= transfer.amount
    family = below(conn, ROOT)
    posted = {name: sats_of(conn, name) for name in s.names}
    for name in s.names:
        inside = [name, *(key.account for key in family if name in key.ancestry[:-1])]
        buckets = {bucket_id(account) for account in inside}
        given = sum(t.amount for t in moved if t.kind == GIVEN and t.credit == bucket_id(name))
        returned = sum(t.amount for t in moved if t.kind == RETURNED and t.debit == bucket_id(name))
        outside = sum(s.outside[account] for account in inside) + (FUNDS if name == ROOT else 0)
        charged = sum(taken[bucket] for bucket in buckets)
        kept = sum(posted[account] for account in inside)
        assert charged <= given + outside - returned
        assert charged + kept == given + outside - returned
        assert returned <= given
        crossed = [t for t in moved if t.debit in buckets and t.credit.startswith("bucket:")]
        assert all(t.credit in buckets or t.kind == RETURNED for t in crossed)


@pytest.mark.timeout(400)
def test_no_schedule_lets_a_subtree_spend_more_than_its_root_gave(engine: Engine) -> None:
    examples = 15 if engine.dialect.name == "sqlite" else 6
    run_state_machine_as_test(
        type("FamilyThere", (Family,), {"engine": engine}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def together(acts: list[Callable[[], None]]) -> list[Exception]:
    """All at once; what they raised."""
    raised: list[Exception] = []
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], None]) -> None:
        barrier.wait(30)
        try:
            act()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return raised


def unserialised(engine: Engine) -> Engine:
    """On PostgreSQL without the store's own write lock: the rows' locks alone must do."""
    return create_engine(engine.url, pool_size=20) if engine.dialect.name == "postgresql" else engine


def test_children_cut_at_once_never_get_more_than_the_parent_has(engine: Engine) -> None:
    raw = unserialised(engine)
    with engine.begin() as conn:
        rich(conn, ROOT, 100)

    def cut_one() -> None:
        with raw.begin() as conn:
            child_of(conn, ROOT, budget_sats=30)

    raised = together([cut_one] * 8)
    with engine.begin() as conn:
        assert len(raised) == 5
        assert all(isinstance(error, InsufficientCredit) for error in raised), raised
        assert sats_of(conn, ROOT) == 10
        assert len(children(conn, ROOT)) == 3
        assert verify(conn).is_whole


def test_slots_cut_at_once_never_add_up_to_more_than_the_parent_has(engine: Engine) -> None:
    raw = unserialised(engine)
    with engine.begin() as conn:
        parent = child_of(conn, rich(conn), slots=5).account

    def cut_one() -> None:
        with raw.begin() as conn:
            child_of(conn, parent, budget_sats=1, depth=0, slots=2)

    raised = together([cut_one] * 8)
    with engine.begin() as conn:
        assert all(isinstance(error, Forbidden) for error in raised), raised
        assert sum(key.slots or 0 for key in children(conn, parent)) == 4


def test_nothing_slips_in_below_a_key_that_is_being_revoked(engine: Engine) -> None:
    raw = unserialised(engine)
    with engine.begin() as conn:
        a = child_of(conn, rich(conn), budget_sats=500).account
        b = child_of(conn, a, budget_sats=200, depth=2).account

    def cut_one() -> None:
        with raw.begin() as conn:
            child_of(conn, b, budget_sats=5, depth=0)

    def end() -> None:
        with raw.begin() as conn:
            revoke(conn, a, actor="test", reason="asked", now=NOW)

    raised = together([cut_one, cut_one, cut_one, end, cut_one, cut_one, cut_one])
    with engine.begin() as conn:
        assert all(isinstance(error, Forbidden) for error in raised), raised
        assert {key.state for key in below(conn, a)} == {KeyState.ENDING}
        for key in sorted(below(conn, ROOT), key=lambda k: -k.generation):
            finish(conn, key.account, now=NOW)
        assert sats_of(conn, ROOT) == 1000
        assert verify(conn).is_whole


def test_finishing_and_giving_more_at_once_lose_nothing(engine: Engine) -> None:
    raw = unserialised(engine)
    with engine.begin() as conn:
        child = child_of(conn, rich(conn), budget_sats=100).account
        revoke(conn, child, actor="test", reason="asked", now=NOW)

    def end() -> None:
        with raw.begin() as conn:
            finish(conn, child, now=NOW)

    def more() -> None:
        with raw.begin() as conn:
            child_of(conn, ROOT, budget_sats=10)

    assert together([end, more, end, more, end, more]) == []
    with engine.begin() as conn:
        assert sats_of(conn, ROOT) == 970
        assert verify(conn).is_whole


def test_a_tree_of_many_is_read_in_a_few_statements(engine: Engine) -> None:
    with engine.begin() as conn:
        rich(conn, ROOT, 10_000)
        for _ in range(5):
            child = child_of(conn, ROOT, budget_sats=50, depth=1).account
            for _ in range(4):
                child_of(conn, child, budget_sats=5, depth=0)
        top = tree(conn, ROOT, now=later(1))

    def count(node: Node) -> int:
        return 1 + sum(count(child) for child in node.children)

    assert count(top) == 26


def test_an_unknown_account_has_no_tree(engine: Engine) -> None:
    with engine.begin() as conn:
        try:
            node = tree(conn, "acc_nobody", now=NOW)
        except NotFound:
            return
        assert node.children == ()
        assert node.totals.balance == 0
