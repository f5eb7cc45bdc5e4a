"""Whom a create asks: failover within one purchase, what is kept of it, strangers, keys, prices."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.agents.inception.grants import caller_of
from sandboxer.artifacts.images.published.use_cases import Wanted as NewImage
from sandboxer.artifacts.volumes.use_cases import Wanted
from sandboxer.backends.contract import Fingerprint, Lack, Order, Wall
from sandboxer.backends.scripted import Scripted
from sandboxer.hosts.routes.breaker import POLICY, BreakerState
from sandboxer.hosts.routes.records import Constraints, IsolationLevel, Strategy, Verdict
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    BackendLost,
    InsufficientCredit,
    InvalidRequest,
    NoCapacity,
    NotAvailable,
    NotFound,
    ProvisionFailed,
    Unavailable,
)
from sandboxer.money.metering import open_holds
from sandboxer.money.statements import actuals
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.promises import Wishes
from sandboxer.sandboxes.records import Inception, OnParentEnd
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.sandboxes.use_cases.inspection import find_stale
from sandboxer.sandboxes.use_cases.routes import explain_route
from sandboxer.wiring import Platform
from tests.support.charging import fund
from tests.support.clock import ManualClock
from tests.support.routes import BROKEN, FALLBACK, FIRST, PAID, SECOND, Open, failing
from tests.support.sandboxes import ALICE, BOB, OWNER

STRONG = "ext.oci"


def strong(name: str = STRONG) -> Scripted:
    walls = frozenset(Wall) - {Wall.UID_RANGE}
    return Scripted(name=name, walls=walls, facts={"isolation_level": "microvm"})


async def test_a_create_whose_first_backend_fails_is_made_by_the_next_and_says_so(open_with: Open) -> None:
    first, second = failing(FIRST, BROKEN), Scripted(name=SECOND)
    async with open_with(first, second, routing=FALLBACK) as platform:
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        assert (made.state, made.backend) == (State.READY, SECOND)
        assert not first.boxes
        assert list(second.boxes) == [made.id]
        assert [(one.backend, one.verdict) for one in made.route.considered] == [
            (FIRST, Verdict.CHOSEN),
            (SECOND, Verdict.FALLBACK),
        ]
        asked = [(one.backend, one.is_made, one.reason) for one in made.route.attempts]
        assert asked == [(FIRST, False, str(BROKEN)), (SECOND, True, "it made it")]
        # Read from the database, not from memory.
        page = await platform.store.read(lambda conn: platform.sandboxes.repository.rows.load(conn, made.id))
        assert page is not None
        assert page.route == made.route
        kinds = [event.kind for event in await platform.events.page(made.id)]
        assert kinds == [
            "sandbox.requested",
            "sandbox.provisioning",
            "sandbox.rerouted",
            "sandbox.ready",
        ]
        await lifetime.destroy(platform.sandboxes, made.id, ALICE)
        assert not second.boxes


async def test_when_all_fail_the_error_is_the_last_one_s_and_the_record_names_all(open_with: Open) -> None:
    lost = BackendLost(why="it does not answer")
    async with open_with(failing(FIRST, BROKEN), failing(SECOND, lost), routing=FALLBACK) as platform:
        with pytest.raises(BackendLost) as caught:
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        failed = await platform.sandboxes.visible(str(caught.value.facts["sandbox_id"]), ALICE)
        assert failed.state is State.FAILED
        assert [one.backend for one in failed.route.attempts] == [FIRST, SECOND]
        assert not any(one.is_made for one in failed.route.attempts)


async def test_a_refusal_of_the_request_goes_on_but_opens_no_breaker(open_with: Open) -> None:
    errors = [
        InvalidRequest(field="image", why="it is not for me"),
        NoCapacity(resource="memory", why="full"),
    ]
    first, second = failing(FIRST, *errors * 4), Scripted(name=SECOND)
    async with open_with(first, second, routing=FALLBACK) as platform:
        for _ in range(8):
            made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
            assert made.backend == SECOND

        assert platform.sandboxes.routes.observed.breaker(FIRST).state is BreakerState.CLOSED


async def test_a_backend_that_fails_again_and_again_is_left_alone_then_tried_once(
    open_with: Open, clock: ManualClock
) -> None:
    first, second = failing(FIRST, *[BROKEN] * 4), Scripted(name=SECOND)
    async with open_with(first, second, routing=FALLBACK) as platform:
        dependencies = platform.sandboxes
        for _ in range(POLICY.trips_after):
            await creation.create(dependencies, CreateRequest(), OWNER)

        skipped = await creation.create(dependencies, CreateRequest(), OWNER)
        # Loops of the platform ask it other things meanwhile.
        assert sum(method == "provision" for method, _ in first.calls) == POLICY.trips_after
        why = {one.backend: one.reason for one in skipped.route.considered}[FIRST]
        assert "failed several times in a row" in why

        clock.advance(POLICY.rests)
        await creation.create(dependencies, CreateRequest(), OWNER)
        assert dependencies.routes.observed.breaker(FIRST).trips == 2

        clock.advance(2 * POLICY.rests)
        healed = await creation.create(dependencies, CreateRequest(), OWNER)
        assert healed.backend == FIRST
        assert dependencies.routes.observed.breaker(FIRST).state is BreakerState.CLOSED


async def test_the_only_backend_is_asked_though_it_failed_again_and_again(open_with: Open) -> None:
    only = failing(FIRST, *[BROKEN] * 5)
    async with open_with(only) as platform:
        for _ in range(5):
            with pytest.raises(ProvisionFailed):
                await creation.create(platform.sandboxes, CreateRequest(), OWNER)

        made = await creation.create(platform.sandboxes, CreateRequest(), OWNER)
        assert made.state is State.READY


async def test_what_a_failed_backend_kept_in_spite_of_its_promise_is_found_as_stale(open_with: Open) -> None:
    first = KeepsAll(name=FIRST, fail_on={"teardown": [BackendLost(why="no")]})
    second = Scripted(name=SECOND)
    async with open_with(first, second, routing=FALLBACK) as platform:
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        (held,) = await find_stale(platform.sandboxes, OWNER)
        assert (held.unknown.id, held.unknown.backend) == (made.id, FIRST)
        assert held.unknown.why == f"its record says it is in {SECOND}"


class KeepsAll(Scripted):
    """A backend that breaks its promise: it fails, keeps what it made, and cannot remove it at first."""

    async def provision(self, order: Order) -> Any:
        await super().provision(order)
        raise BROKEN


async def test_a_stronger_wall_is_looked_for_beyond_the_profile_s_own_backend(open_with: Open) -> None:
    request = CreateRequest(wishes=Wishes(isolation=IsolationLevel.STRONG))
    async with open_with(Scripted(name=FIRST), strong()) as platform:
        made = await creation.create(platform.sandboxes, request, OWNER)

        assert made.backend == STRONG
        reasons = {one.backend: one.reason for one in made.route.considered}
        assert reasons[FIRST].startswith("it gives the isolation container, not strong")
        assert "the request asks for it" in reasons[STRONG]


async def test_without_a_stronger_wall_it_is_refused_as_ever(open_with: Open) -> None:
    request = CreateRequest(wishes=Wishes(isolation=IsolationLevel.STRONG))
    async with open_with(Scripted(name=FIRST)) as platform:
        with pytest.raises(NotAvailable) as caught:
            await creation.create(platform.sandboxes, request, OWNER)

        assert caught.value.facts["promise"] == "isolation"


@pytest.mark.parametrize(
    ("wall", "is_there", "stranger_s", "invited_s"),
    [
        ("auto", True, STRONG, FIRST),
        ("auto", False, FIRST, FIRST),
        ("profile", True, FIRST, FIRST),
        ("strong", True, STRONG, FIRST),
        ("strong", False, None, FIRST),
    ],
)
async def test_accounts_of_strangers_get_the_strong_wall_where_there_is_one(
    open_with: Open, wall: str, is_there: bool, stranger_s: str | None, invited_s: str
) -> None:
    backends = [Scripted(name=FIRST), *([strong()] if is_there else [])]
    async with open_with(*backends, strangers_wall=wall) as platform:
        await _open_account(platform, BOB.account)

        assert await _made_on(platform, ALICE) == stranger_s
        assert await _made_on(platform, BOB) == invited_s
        assert await _made_on(platform, OWNER) == FIRST


async def test_a_stranger_gets_round_the_wall_by_no_disk_that_lies_elsewhere(open_with: Open) -> None:
    async with open_with(Scripted(name=FIRST), strong()) as platform:
        volume = await platform.artifacts.volumes.create(Wanted(name="data", size_mb=16), ALICE)
        assert volume.backend == STRONG
        request = CreateRequest(lies_in=FIRST)

        with pytest.raises(NotAvailable) as caught:
            await creation.create(platform.sandboxes, request, ALICE)

        assert "not opened by the operator" in str(caught.value)


async def test_what_strangers_send_as_an_image_lies_where_their_sandboxes_stand(open_with: Open) -> None:
    async with open_with(Scripted(name=FIRST), strong()) as platform:
        artifacts, lies_in = platform.artifacts, {}
        for caller in (ALICE, OWNER):
            sent = await artifacts.images.receive(
                NewImage(name="mine"),
                caller,
                lambda layer: os.mkdir("etc", dir_fd=layer),
                profile="profile.agent-dev",
                limit_mb=16,
                size_bytes=0,
            )
            request = await artifacts.spawning.request_for(sent.id, CreateRequest(), caller)
            made = await creation.create(platform.sandboxes, request, caller)
            lies_in[caller] = sent.backend, made.backend

        assert lies_in == {ALICE: (STRONG, STRONG), OWNER: (FIRST, FIRST)}


def _inception(*, depth: int, slots: int) -> Inception:
    scopes = ("sandboxes:create", "sandboxes:read", "keys:delegate")
    end = OnParentEnd.END
    return Inception(budget_sats=0, depth=depth, slots=slots, scopes=scopes, on_parent_end=end)


async def test_nobody_gets_from_a_kernel_of_its_own_to_the_hosts_by_making_a_sandbox(open_with: Open) -> None:
    async with open_with(Scripted(name=FIRST), strong()) as platform:
        wanted = CreateRequest(
            wishes=Wishes(isolation=IsolationLevel.STRONG), inception=_inception(depth=2, slots=3)
        )
        walled = await creation.create(platform.sandboxes, wanted, OWNER)
        below = CreateRequest(inception=_inception(depth=1, slots=1))
        child = await creation.create(platform.sandboxes, below, caller_of(walled))
        last = await creation.create(platform.sandboxes, CreateRequest(), caller_of(child))
        plain = await creation.create(platform.sandboxes, below, OWNER)
        of_plain = await creation.create(platform.sandboxes, CreateRequest(), caller_of(plain))

        assert [one.backend for one in (walled, child, last)] == [STRONG] * 3
        assert [one.backend for one in (plain, of_plain)] == [FIRST] * 2
        why = {one.backend: one.reason for one in child.route.considered}
        assert "the sandbox that asks for it has a kernel of its own" in why[FIRST]


async def test_an_experimental_backend_is_taken_only_where_a_profile_names_it(open_with: Open) -> None:
    request = CreateRequest(wishes=Wishes(isolation=IsolationLevel.STRONG))
    async with open_with(Scripted(name=FIRST), strong("ext.new")) as platform:
        platform.sandboxes.routes.experimental = {"ext.new": "nobody has tried it"}
        with pytest.raises(NotAvailable):
            await creation.create(platform.sandboxes, request, OWNER)

    routing = {"fallback": {"profile.agent-dev": ["ext.new"]}}
    async with open_with(Scripted(name=FIRST), strong("ext.new"), routing=routing) as platform:
        platform.sandboxes.routes.experimental = {"ext.new": "nobody has tried it"}
        assert (await creation.create(platform.sandboxes, request, OWNER)).backend == "ext.new"


async def test_the_lowest_latency_is_what_creates_really_took(open_with: Open) -> None:
    slow, quick = Slow(name=FIRST), Scripted(name=SECOND)
    request = CreateRequest(route=Constraints(strategy=Strategy.LOWEST_LATENCY))
    async with open_with(slow, quick, routing=FALLBACK) as platform:
        # Neither is known: each is tried once.
        made = [(await creation.create(platform.sandboxes, request, OWNER)).backend for _ in range(4)]

        assert made == [FIRST, SECOND, SECOND, SECOND]


class Slow(Scripted):
    async def provision(self, order: Order) -> Any:
        # Real time, since real time is measured.
        await asyncio.to_thread(_busy)
        return await super().provision(order)


def _busy() -> None:
    sum(range(3_000_000))


async def test_one_purchase_charges_once_whoever_makes_it(open_with: Open, clock: ManualClock) -> None:
    first, second = failing(FIRST, BROKEN), Scripted(name=SECOND, usd_per_hour="0.36")
    async with open_with(first, second, **PAID) as platform:
        await fund(platform, 100_000, id="first")
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        # 0.36 USD an hour at 100,000 USD are 360 sats an hour, 100 msats a second; and the fee of 10.
        assert made.backend == SECOND
        assert made.terms.card.running == 110
        assert await _holds(platform, ALICE.account) == []
        clock.advance(timedelta(seconds=1000))
        await lifetime.destroy(platform.sandboxes, made.id, ALICE)
        assert await _spent(platform, made.id) == [(110, 1000)]


async def test_while_the_next_makes_it_there_is_one_hold_and_it_is_the_next_s(open_with: Open) -> None:
    first, second = failing(FIRST, BROKEN), Waiting(name=SECOND, usd_per_hour="0.36")
    async with open_with(first, second, **PAID) as platform:
        await fund(platform, 100_000, id="first")
        making = asyncio.ensure_future(creation.create(platform.sandboxes, CreateRequest(), ALICE))
        await second.asked.wait()

        # Ten minutes of 110 msats a second.
        assert await _holds(platform, ALICE.account) == [66]
        second.may_go_on.set()
        await making


async def test_a_dearer_backend_that_the_account_cannot_pay_is_passed_over(open_with: Open) -> None:
    routing = {"fallback": {"profile.agent-dev": [SECOND, "ext.third"]}}
    first, dear, third = (
        failing(FIRST, BROKEN),
        Scripted(name=SECOND, usd_per_hour="360"),
        Scripted(name="ext.third"),
    )
    async with open_with(first, dear, third, **{**PAID, "routing": routing}) as platform:
        await fund(platform, 100, id="first")
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        assert made.backend == "ext.third"
        assert [one.backend for one in made.route.attempts] == [FIRST, SECOND, "ext.third"]
        assert not dear.boxes


async def test_a_dearer_one_that_is_the_last_and_cannot_be_paid_ends_the_create_and_holds_nothing(
    open_with: Open,
) -> None:
    first, dear = failing(FIRST, BROKEN), Scripted(name=SECOND, usd_per_hour="360")
    async with open_with(first, dear, **PAID) as platform:
        await fund(platform, 100, id="first")
        with pytest.raises(InsufficientCredit):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)

        assert await _holds(platform, ALICE.account) == []
        assert not dear.boxes


async def test_with_a_key_of_its_own_an_account_pays_the_fee_alone_and_the_key_is_kept_nowhere(
    open_with: Open, tmp_path: Path
) -> None:
    provider = Scripted(name=FIRST, usd_per_hour="360")
    request = CreateRequest(route=Constraints(keys={FIRST: "PROVIDER_KEY"}))
    async with open_with(provider, **PAID) as platform:
        await fund(platform, 100_000, id="first")
        with pytest.raises(NotFound):
            await creation.create(platform.sandboxes, request, ALICE)
        await platform.access.secrets.vault.put("PROVIDER_KEY", "very-secret-key", ALICE)

        made = await creation.create(platform.sandboxes, request, ALICE)

        assert made.terms.card.running == platform.pricing.rates.running_msats
        assert made.route.key_name == "PROVIDER_KEY"
        assert ("key", made.id) in provider.calls
        assert "very-secret-key" not in repr(made)
        events = await platform.events.page(made.id)
        assert "very-secret-key" not in repr(events)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"very-secret-key" in file.read_bytes()]


async def test_what_nobody_has_a_rate_for_is_made_for_nobody_who_pays(open_with: Open) -> None:
    provider = Scripted(name=FIRST, usd_per_hour="1")
    async with open_with(provider, charging=True) as platform:
        await fund(platform, 100_000, id="first")
        with pytest.raises(NotAvailable, match="no rate"):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert (await creation.create(platform.sandboxes, CreateRequest(), OWNER)).state is State.READY


async def test_a_platform_that_has_sandboxes_can_be_given_another_backend(open_with: Open) -> None:
    first = Scripted(name=FIRST)
    async with open_with(first) as platform:
        made = await creation.create(platform.sandboxes, CreateRequest(), OWNER)

    async with open_with(first, strong()) as platform:
        assert (await platform.sandboxes.visible(made.id, OWNER)).state is State.READY


class Ill(Scripted):
    """Its host does not answer."""

    async def fingerprint(self) -> Fingerprint:
        lack = Lack(what="its host", why="ssh: connect to host 10.1.2.3 port 22", remedy="start it")
        return replace(await super().fingerprint(), healthy=False, lacks=(lack,))


async def test_where_a_host_stands_that_does_not_answer_is_told_to_the_operator_alone(
    open_with: Open,
) -> None:
    request = CreateRequest(route=Constraints(region="eu"))
    async with open_with(Scripted(name=FIRST), Ill(name=SECOND), routing=FALLBACK) as platform:
        said = {}
        for who in (ALICE, OWNER):
            explained = await explain_route(platform.sandboxes, CreateRequest(), who)
            said[who.account] = {one.backend: one.reason for one in explained.considered}[SECOND]
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        with pytest.raises(NotAvailable) as refused:
            await creation.create(platform.sandboxes, request, ALICE)

    assert "10.1.2.3" in said[OWNER.account]
    assert said[ALICE.account] == "it cannot work here (its host is not fit)"
    assert "10.1.2.3" not in f"{made.route} {refused.value}"


async def test_a_create_where_the_only_host_does_not_answer_names_no_host(open_with: Open) -> None:
    async with open_with(Ill(name=FIRST)) as platform:
        with pytest.raises(Unavailable) as refused:
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)

    assert "10.1.2.3" not in str(refused.value)


async def test_an_explanation_makes_nothing(open_with: Open) -> None:
    first, second = Scripted(name=FIRST), Scripted(name=SECOND)
    async with open_with(first, second) as platform:
        explained = await explain_route(platform.sandboxes, CreateRequest(), ALICE)

        assert [(one.backend, one.verdict.value, one.reason) for one in explained.considered] == [
            (FIRST, "chosen", "it is the one that is named"),
            (SECOND, "refused", "neither profile nor settings name it for this"),
        ]
        assert not first.boxes
        assert not list(platform.sandboxes.repository.living())


class Waiting(Scripted):
    """Makes nothing until it may go on."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def provision(self, order: Order) -> Any:
        self.asked.set()
        await self.may_go_on.wait()
        return await super().provision(order)


async def _made_on(platform: Platform, who: Caller) -> str | None:
    try:
        return (await creation.create(platform.sandboxes, CreateRequest(), who)).backend
    except NotAvailable:
        return None


async def _open_account(platform: Platform, account: str) -> None:
    now = platform.clock.now()

    def write(conn: Connection) -> None:
        accounts.ensure(conn, account, actor="test", now=now)
        accounts.invite(conn, account, actor="test", reason="test", now=now)

    await platform.store.write(write)


async def _holds(platform: Platform, account: str) -> list[int]:
    return [hold.sats for hold in await platform.store.read(lambda conn: open_holds(conn, account))]


async def _spent(platform: Platform, sandbox_id: str) -> list[tuple[int, int]]:
    """Returns the rates at which it was charged, in msats a second, and for how many seconds each."""
    now = platform.clock.now()
    lines = await platform.store.read(lambda conn: actuals(conn, ALICE.account, sandbox_id, now=now))
    return [(one.msats // (one.seconds_us // 10**6), one.seconds_us // 10**6) for one in lines]
