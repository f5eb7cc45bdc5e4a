"""Any schedule of lives, payments, budgets, restarts and crashes charges rate × time, to the sat.

The model reads nothing of the money: it adds up what each sandbox's own events say of its states, and what
was paid in and given to children. The platform is the real one on the scripted backend.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import Connection, select

from sandboxer.accounts import records
from sandboxer.accounts.authority import ALL_SCOPES
from sandboxer.accounts.delegation import Cut, cut, find_key, top_up
from sandboxer.accounts.revocation import ending, revoke
from sandboxer.backends.contract import Resources
from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    Conflict,
    Forbidden,
    InsufficientCredit,
    InvalidRequest,
    NoCapacity,
    NotFound,
)
from sandboxer.kernel.values import new_id
from sandboxer.money.amounts import NSATS_PER_MSAT, NSATS_PER_SAT
from sandboxer.money.buckets import credit, open_bucket
from sandboxer.money.pricing import FREE, RateCard, rate_card
from sandboxer.money.reconciler import attend_due
from sandboxer.money.statements import account_view, usage
from sandboxer.money.verification import verify
from sandboxer.observe.events import events
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.demands import read_condition, wanted
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import boosts, creation, lifetime
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.support.clock import ManualClock
from tests.support.sandboxes import ACTS, ALICE

_count = count()
T = TypeVar("T")
# Odd on purpose: fractions of a sat are left over everywhere.
PRICES = {
    "rates": {
        "running_msats": 1237,
        "vcpu_msats": 401,
        "memory_gb_msats": 59,
        "disk_gb_msats": 0,
        "frozen_memory_gb_msats": 311,
        "stored_disk_gb_msats": 13,
    }
}
WAITS = [
    timedelta(seconds=1),
    timedelta(seconds=47, microseconds=123_457),
    timedelta(minutes=11),
    timedelta(hours=3, microseconds=1),
]
DRY = ("account.dry", "account.reaped")
REFUSALS = (InsufficientCredit, Forbidden, Conflict, InvalidRequest, NotFound, NoCapacity)


class PaidLives(RuleBasedStateMachine):
    # A server on which each run gets a database of its own; None: SQLite in its folder.
    server: ClassVar[str | None] = None
    callers = Bundle("callers")
    boxes = Bundle("boxes")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.url = None if self.server is None else _fresh(self.server)
        self.clock = ManualClock()
        self.backend = Scripted(name="ext.namespaces", clock=self.clock)
        self.stack = AsyncExitStack()
        self.platform: Platform = self.wait(self.open())
        # Each payment, when it came.
        self.paid: list[tuple[datetime, int]] = []
        self.given: dict[str, int] = {}
        # When the time of each sandbox was to be over, as it was when time last began to pass.
        self.ends: dict[str, datetime | None] = {}
        self.count = 0
        self.pay(5000)

    def wait(self, act: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(act, 30))

    async def open(self) -> Platform:
        given: dict[str, Any] = {} if self.url is None else {"database": self.url}
        chosen = Settings(
            state_dir=Path(self.folder.name), pricing=PRICES, retention="30d", unpaid_kept="30d", **given
        )
        backends = {"ext.namespaces": self.backend}
        return await self.stack.enter_async_context(
            open_platform(chosen, clock=self.clock, backends=backends)
        )

    def write(self, act: Callable[[Connection], T]) -> T:
        return self.wait(self.platform.store.write(act))

    async def calm(self) -> None:
        """Until money demands nothing more of anything, and no ending key has anything left."""
        dependencies, store = self.platform.sandboxes, self.platform.store
        for _ in range(2000):
            while await store.write(partial(attend_due, now=self.clock.now())):
                pass
            is_busy = any(dependencies.operations.running(one.id) for one in dependencies.repository.living())
            if not is_busy and await store.read(self._is_calm):
                return
            await asyncio.sleep(0.002)
        raise AssertionError("it never became calm")

    def _is_calm(self, conn: Connection) -> bool:
        now, living = self.clock.now(), list(self.platform.sandboxes.repository.living())
        if ending(conn) or any(one.expires_at is not None and one.expires_at <= now for one in living):
            return False
        for account in {one.account for one in living}:
            mine = [one for one in living if one.account == account]
            condition = read_condition(conn, account, mine, now=now)
            if any(wanted(one, condition) is not None for one in mine):
                return False
        return True

    @rule(delay=st.sampled_from(WAITS))
    def time_passes(self, delay: timedelta) -> None:
        self.ends |= {one.id: one.expires_at for one in self.platform.sandboxes.repository.living()}
        self.clock.advance(delay)
        # Sleepers that began as the clock moved sleep on: they are moved on without time passing for money.
        self.wait(self.calm_or_restart())

    async def calm_or_restart(self) -> None:
        try:
            await asyncio.wait_for(self.calm(), 5)
        except (AssertionError, TimeoutError):
            await self.reopen()
            await self.calm()

    async def reopen(self) -> None:
        await self.stack.aclose()
        self.stack = AsyncExitStack()
        self.platform = await self.open()

    @rule(sats=st.sampled_from([1, 60, 700, 20_000]))
    def someone_pays(self, sats: int) -> None:
        self.pay(sats)

    def pay(self, sats: int) -> None:
        self.count += 1
        now, id = self.clock.now(), f"pay:{self.count}"

        def twice(conn: Connection) -> None:
            records.ensure(conn, "alice", actor="test", now=now)
            open_bucket(conn, "alice", now=now)
            for _ in range(2):
                credit(conn, "alice", sats, id=id, reason="paid", now=now)

        self.write(twice)
        self.paid.append((now, sats))
        self.wait(self.calm_or_restart())

    @rule(target=callers, sats=st.sampled_from([1, 50, 900]))
    def cut_a_child(self, sats: int) -> Caller:
        child = Caller(public_key="sbx-pk-" + new_id("x")[2:], account=new_id("acc"))
        now = self.clock.now()
        try:
            self.write(
                lambda conn: cut(
                    conn,
                    "alice",
                    Cut(scopes=ALL_SCOPES, budget_sats=sats),
                    public_key=child.public_key,
                    cut_by=ALICE.public_key,
                    account=child.account,
                    now=now,
                )
            )
        except InsufficientCredit:
            return ALICE
        self.given[child.account] = sats
        return child

    @rule(child=callers, sats=st.sampled_from([1, 300]))
    def top_up_a_child(self, child: Caller, sats: int) -> None:
        self.count += 1
        now, id = self.clock.now(), f"t{self.count}"
        try:
            for _ in range(2):
                self.write(
                    lambda conn: top_up(conn, "alice", child.account, sats, id=id, cut_by="k", now=now)
                )
        except REFUSALS:
            return
        self.given[child.account] += sats
        self.wait(self.calm_or_restart())

    @rule(child=callers)
    def revoke_a_child(self, child: Caller) -> None:
        if child.account in self.given:
            now = self.clock.now()
            self.write(lambda conn: revoke(conn, child.account, actor="test", reason="test", now=now))
            self.wait(self.calm_or_restart())

    @rule(target=boxes, who=st.one_of(st.just(ALICE), callers), fails=st.booleans())
    def create(self, who: Caller, fails: bool) -> tuple[Caller, str]:
        if fails:
            self.backend.fail_next("provision", NoCapacity(resource="memory", why="full"))
        try:
            made = self.wait(creation.create(self.platform.sandboxes, CreateRequest(ttl="2h"), who)).id
        except REFUSALS:
            made = ""
        # Of a create that was refused earlier.
        self.backend._failures.clear()
        self.wait(self.calm_or_restart())
        return who, made

    @rule(
        box=boxes,
        act=st.sampled_from(
            ["freeze", "thaw", "stop", "resume", "recreate", "destroy", "extend", "boost", "boost", "unboost"]
        ),
        vcpus=st.sampled_from([2, 3, 8]),
    )
    def ask(self, box: tuple[Caller, str], act: str, vcpus: int) -> None:
        who, sandbox_id = box
        sandboxes = self.platform.sandboxes
        try:
            if act == "extend":
                self.wait(lifetime.change_ttl(sandboxes, sandbox_id, "1h", who))
            elif act == "boost":
                self.wait(boosts.boost(sandboxes, sandbox_id, who, vcpus=vcpus))
            else:
                self.wait(ACTS[act](sandboxes, sandbox_id, who))
        except REFUSALS:
            return
        self.wait(self.calm_or_restart())

    @rule()
    def the_server_restarts(self) -> None:
        self.wait(self.reopen())
        self.wait(self.calm())

    @rule(turns=st.integers(0, 12), is_host=st.booleans())
    def it_ends_in_mid_create(self, turns: int, is_host: bool) -> None:
        async def crash() -> None:
            made = asyncio.ensure_future(
                creation.create(self.platform.sandboxes, CreateRequest(), ALICE, wait=False)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.stack.aclose()
            self.stack = AsyncExitStack()
            await asyncio.wait((made,))
            if not made.cancelled():
                made.exception()
            if is_host:
                self.backend.reboot()
            self.platform = await self.open()
            await self.calm()

        self.wait(crash())

    @invariant()
    def every_sat_is_where_it_belongs(self) -> None:
        now = self.clock.now()
        reported = self.wait(self.lives())

        def check(conn: Connection) -> None:
            proof = verify(conn)
            assert proof.is_whole, proof.faults
            assert set(proof.sums.values()) <= {0}
            keys = [key for child in self.given if (key := find_key(conn, child)) is not None]
            returned = sum(key.returned_sats or 0 for key in keys)
            view = account_view(conn, "alice", now=now)
            has = view.balance - view.debt
            paid_in = sum(sats for _, sats in self.paid)
            # Fractions of a sat that ended children owed are added to her own, and may make a whole one.
            ran = reported.get("alice", 0) + sum(
                self.used(conn, key.account) % NSATS_PER_SAT // NSATS_PER_MSAT * NSATS_PER_MSAT
                for key in keys
                if key.returned_sats
            )
            left = paid_in - sum(self.given.values()) + returned - ran // NSATS_PER_SAT
            dry, funded = moments(conn, "alice", *DRY), moments(conn, "alice", "account.funded")
            # Who ran dry pays no further than the grace it had earned, however long its sandboxes lived on;
            assert has == left or (dry and has > left)
            # and all it had before is spent, unless it was found at once that what ran was over before.
            if spent_at := dry - funded:
                since = sum(sats for moment, sats in self.paid if moment >= max(spent_at))
                assert has <= since + returned
            for child, sats in self.given.items():
                self.check_child(conn, child, sats, reported.get(child, 0))

        self.wait(self.platform.store.read(check))

    def check_child(self, conn: Connection, child: str, given: int, ran: int) -> None:
        """It spends for as long as it ran, to the nanosat; less only if what it was given ran out first."""
        used = self.used(conn, child)
        view = account_view(conn, child, now=self.clock.now())
        assert used == ran or (moments(conn, child, *DRY) and used < ran)
        # To the sat: a microsecond is the least that can be charged.
        assert used // NSATS_PER_SAT <= given
        assert view.debt == 0

    def used(self, conn: Connection, account: str) -> int:
        now = self.clock.now()
        until = now + timedelta(microseconds=1)
        lines = usage(conn, account, since=now.replace(year=1970), until=until, now=now)
        return sum(line.nsats for line in lines)

    async def lives(self) -> dict[str, int]:
        """What each account's sandboxes ran up, in nanosats, as their events tell it."""
        sums: dict[str, int] = {}
        steps: dict[str, list[Any]] = {}
        after = 0
        while page := await self.platform.events.page(None, after):
            for event in page:
                if event.subject.startswith("sbx_") and ("to" in event.data or "vcpus" in event.data):
                    steps.setdefault(event.subject, []).append(event)
            after = page[-1].id
        for id, reported in steps.items():
            sandbox = await self.platform.sandboxes.repository.find(id)
            assert sandbox is not None
            had = sandbox.resources if sandbox.boosted_from is None else sandbox.boosted_from.resources
            state, card, why, began = State.REQUESTED, self.card_of(sandbox, had), "", reported[0].at
            for event in (*reported, None):
                ended = self.clock.now() if event is None else event.at
                if event is not None and event.data.get("to") == State.EXPIRED.value:
                    # It is charged for the time it was given, however late somebody came to end it.
                    ended = min(ended, self.ends.get(id) or ended)
                us = (ended - began) // timedelta(microseconds=1)
                sums[sandbox.account] = sums.get(sandbox.account, 0) + _rate(state, why, card) * us
                if event is None:
                    break
                began = ended
                if "to" in event.data:
                    state, why = State(event.data["to"]), event.reason
                else:
                    more = {"vcpus": event.data["vcpus"], "memory_mb": event.data["memory_mb"]}
                    card = self.card_of(sandbox, replace(had, **more))
        return sums

    def card_of(self, sandbox: Sandbox, resources: Resources) -> RateCard:
        free = sandbox.terms.is_free
        return FREE if free else rate_card(sandbox.profile, size_of(resources), self.platform.pricing)

    def teardown(self) -> None:
        self.wait(self.stack.aclose())
        self.loop.close()
        self.folder.cleanup()


def moments(conn: Connection, account: str, *kinds: str) -> set[datetime]:
    """When this was told of it."""
    reported = select(events.c.at).where(events.c.subject == account, events.c.kind.in_(kinds))
    return set(conn.execute(reported).scalars())


def _rate(state: State, why: str, card: RateCard) -> int:
    if state is State.FROZEN or why == "dry_while_frozen":
        return card.frozen
    if state in (State.READY, State.ACTIVE, State.GRACE):
        return card.running
    return card.stored if state in (State.STOPPED, State.REAPED) else 0


def _fresh(server: str) -> str:
    name = f"schedule_{next(_count)}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return server.rpartition("/")[0] + "/" + name


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_any_schedule_of_paid_lives_charges_rate_times_time(
    kind: str, times: int, request: pytest.FixtureRequest
) -> None:
    class Here(PaidLives):
        pass

    if kind == "postgresql":
        Here.server = request.getfixturevalue("postgres_url")
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Here,
        settings=settings(
            max_examples=(6 if kind == "sqlite" else 3) * times,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_what_a_child_and_its_parent_owe_of_a_sat_is_a_sat_together() -> None:
    here = PaidLives()
    try:
        child = here.cut_a_child(900)
        for who in (child, ALICE):
            here.ask(here.create(who, fails=False), "stop", vcpus=2)
        # Each now owes three fifths of one.
        here.time_passes(WAITS[1])
        here.revoke_a_child(child)
        here.every_sat_is_where_it_belongs()
    finally:
        here.teardown()
