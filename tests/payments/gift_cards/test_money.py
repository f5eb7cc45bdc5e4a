"""Where the cents go: any schedule of redeeming, approving, revoking and refunding keeps every one."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, select

from sandboxer.accounts import records as accounts
from sandboxer.accounts.records import Change
from sandboxer.kernel.errors import Conflict, InsufficientCredit, NoRate, NotFound, SandboxerError
from sandboxer.payments.gift_cards.records import Approval, CardState, RedemptionState, Source
from sandboxer.payments.gift_cards.use_cases import CardOrder, Who
from sandboxer.payments.tables import gift_cards, gift_redemptions
from sandboxer.store.engine import open_store
from tests.support.payments.gift_cards import HOOK, Shop, open_shop

ME = "acc_me"


async def test_fifty_less_a_tier_leaves_thirty_and_the_rest_becomes_sats(shop: Shop) -> None:
    made = await shop.card(5000)
    tier = await shop.redeem(made.code, tier=1, months=3, request_id="tier")
    assert (tier.redemption.cents, tier.left) == (1953, 3047)
    rest = await shop.redeem(made.code, caller=tier.redemption.account, request_id="rest")
    assert (rest.redemption.sats, rest.redemption.rate, rest.left) == (50783, "60000", 0)
    assert await shop.sats(tier.redemption.account) == 50783
    assert (await shop.cards.use_cases.view(made.card.id)).card.state is CardState.SPENT


async def test_the_code_is_nowhere_in_the_database(shop: Shop) -> None:
    made = await shop.card()
    assert made.code is not None

    def everything(conn: Connection) -> str:
        return str([list(conn.execute(select(table))) for table in (gift_cards, gift_redemptions)])

    kept = await shop.store.read(everything)
    assert made.card.id in kept
    assert made.code not in kept
    assert made.code not in repr(made)


async def test_no_rate_no_sats_and_nothing_lost(shop: Shop) -> None:
    made = await shop.card()
    shop.rates.is_gone = True
    with pytest.raises(NoRate):
        await shop.redeem(made.code)
    assert await shop.left(made.card.id) == (5000, 0)
    shop.rates.is_gone = False
    assert (await shop.redeem(made.code)).redemption.sats == 83333


async def test_an_approval_without_a_rate_waits_and_the_link_stays_good(shop: Shop) -> None:
    made = await shop.card(approval=HOOK)
    asked = await shop.redeem(made.code, cents=1000)
    assert await shop.left(made.card.id) == (4000, 1000)
    shop.rates.is_gone = True
    with pytest.raises(NoRate):
        await shop.cards.redeeming.approve(shop.token(asked))
    shop.rates.is_gone = False
    done = await shop.cards.redeeming.approve(shop.token(asked))
    assert (done.redemption.state, done.redemption.sats) == (RedemptionState.GRANTED, 16666)
    with pytest.raises(Conflict):
        await shop.cards.redeeming.approve(shop.token(asked))


@pytest.mark.parametrize("change", [Change.SUSPEND, Change.CLOSE])
@pytest.mark.parametrize("asks", [{"cents": 1000}, {"tier": 1, "months": 1}])
async def test_what_is_approved_for_an_account_that_may_not_act_stays_on_the_card(
    shop: Shop, change: Change, asks: dict[str, int]
) -> None:
    """Only the operator could take it out again."""
    made = await shop.card(approval=HOOK)
    await shop.store.write(lambda conn: accounts.ensure(conn, ME, actor="test", now=shop.clock.now()))
    asked = await shop.redeem(made.code, caller=ME, **asks)
    changed = partial(accounts.change_status, actor="test", reason="test", now=shop.clock.now())
    await shop.store.write(lambda conn: changed(conn, ME, change))
    with pytest.raises(Conflict, match="takes no payments"):
        await shop.cards.redeeming.approve(shop.token(asked))
    await shop.cards.redeeming.deny(shop.token(asked))
    assert await shop.left(made.card.id) == (5000, 0)


async def test_a_link_is_too_late_after_its_time(shop: Shop) -> None:
    made = await shop.card(approval=HOOK)
    asked = await shop.redeem(made.code)
    shop.clock.moment += timedelta(days=4)
    for answer in (shop.cards.redeeming.approve, shop.cards.redeeming.deny):
        with pytest.raises(Conflict):
            await answer(shop.token(asked))
    await shop.cards.redeeming.expire_overdue()
    assert await shop.left(made.card.id) == (5000, 0)


async def test_a_refund_to_sats_takes_what_waits_with_it(shop: Shop) -> None:
    made = await shop.bought(2000, ME, approval=HOOK)
    had = await shop.sats(ME)
    await shop.redeem(made.code, cents=500)
    view, sats = await shop.cards.use_cases.refund_to_sats(made.card.id, Who(account=ME), account=None)
    assert (view.card.state, view.left, sats) == (CardState.REFUNDED, 0, 33333)
    assert await shop.sats(ME) == had + sats
    with pytest.raises(SandboxerError):
        await shop.cards.use_cases.refund_to_sats(made.card.id, Who(account=ME), account=None)


async def test_a_card_given_away_is_nobodys_money(shop: Shop) -> None:
    made = await shop.card()
    with pytest.raises(Conflict):
        await shop.cards.use_cases.refund_to_sats(
            made.card.id, Who(claim=made.claim.token, account=ME), account=None
        )
    view = await shop.cards.use_cases.revoke(made.card.id, Who(is_owner=True, account="owner"), reason="lost")
    assert (view.card.state, view.left) == (CardState.REVOKED, 0)


async def test_new_words_end_the_old_ones(shop: Shop) -> None:
    made = await shop.card()
    who = Who(claim=made.claim.token)
    with pytest.raises(Conflict):
        await shop.cards.use_cases.reveal(made.card.id, who)
    _, code = await shop.cards.use_cases.reveal(made.card.id, who, again=True)
    with pytest.raises(NotFound):
        await shop.redeem(made.code)
    assert (await shop.redeem(code)).redemption.cents == 5000


async def test_what_is_not_there_buys_no_card(shop: Shop) -> None:
    await shop.fund(ME, 10)
    order = CardOrder(cents=700, source=Source.SATS, asked_by="t", account=ME)
    with pytest.raises(InsufficientCredit):
        await shop.cards.use_cases.create(order)
    assert await shop.sats(ME) == 10
    assert await shop.cards.use_cases.page() == []


async def test_many_who_redeem_one_card_at_once_never_get_more_than_it_holds(shop: Shop) -> None:
    made = await shop.card(5000)
    got: list[int] = []

    async def try_(number: int) -> None:
        try:
            done = await shop.redeem(made.code, cents=700, caller=f"acc_{number}", request_id=f"r{number}")
        except (Conflict, NotFound):
            return
        got.append(done.redemption.cents)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(try_(number))
    assert sum(got) == 4900
    assert await shop.left(made.card.id) == (100, 0)


async def test_two_servers_on_one_postgresql_never_overspend_a_card(database_url: str) -> None:
    if not database_url.startswith("postgresql"):
        # SQLite has one writer; see the test above.
        return
    first, second = open_store(database_url), open_store(database_url)
    try:
        async with open_shop(first) as one, open_shop(second) as two:
            made = await one.card(5000)
            got: list[int] = []

            async def try_(shop: Shop, number: int) -> None:
                try:
                    done = await shop.redeem(
                        made.code, cents=700, caller=f"acc_{number % 3}", request_id=f"r{number}"
                    )
                except (Conflict, NotFound):
                    return
                got.append(done.redemption.cents)

            async with asyncio.TaskGroup() as group:
                for number in range(24):
                    group.create_task(try_((one, two)[number % 2], number))
            assert sum(got) == 4900
            await one.check_books()
    finally:
        await first.close()
        await second.close()


async def test_the_same_request_at_once_is_one_redemption(shop: Shop) -> None:
    made = await shop.card(5000)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shop.redeem(made.code, caller=ME)) for _ in range(10)]
    assert len({task.result().redemption.id for task in tasks}) == 1
    assert await shop.sats(ME) == 83333


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("redeem"), st.integers(1, 2500)),
        st.tuples(st.just("tier"), st.sampled_from([1, 3])),
        st.tuples(st.sampled_from(["approve", "deny"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["revoke", "refund", "late", "rate", "words"]), st.just(0)),
    ),
    max_size=14,
)


async def _any_schedule(
    shop: Shop, steps: list[tuple[str, int]], needs_approval: bool, is_bought: bool
) -> None:
    approval: Approval | None = HOOK if needs_approval else None
    if is_bought:
        made = await shop.bought(5000, ME, approval=approval)
    else:
        made = await shop.card(5000, approval=approval)
    run = _Run(shop, made.card.id, made.code, made.claim.token)
    for number, (word, value) in enumerate(steps):
        with contextlib.suppress(SandboxerError):
            await run.step(number, word, value)
        await run.check()
    shop.rates.is_gone = False
    await shop.check_books()


async def test_any_schedule_keeps_every_cent(shop: Shop) -> None:
    # Hypothesis does not await: it runs on a thread, and each example on the test's own loop.
    loop = asyncio.get_running_loop()

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS, needs_approval=st.booleans(), is_bought=st.booleans())
    def run(steps: list[tuple[str, int]], needs_approval: bool, is_bought: bool) -> None:
        work = _any_schedule(shop, steps, needs_approval, is_bought)
        asyncio.run_coroutine_threadsafe(work, loop).result(60)

    await asyncio.to_thread(run)


class _Run:
    """One card through one schedule, with the sum that must hold after every step."""

    def __init__(self, shop: Shop, card: str, code: str | None, claim: str) -> None:
        self.shop, self.card, self.code, self.who = shop, card, code, Who(claim=claim, account=ME)
        self.links: list[str] = []

    async def step(self, number: int, word: str, value: int) -> None:
        shop = self.shop
        if word in ("redeem", "tier"):
            wanted = {"cents": value} if word == "redeem" else {"tier": 1, "months": value}
            done = await shop.redeem(self.code, **wanted, caller=ME, request_id=f"{self.card}-{number}")
            if done.redemption.state is RedemptionState.PENDING_APPROVAL:
                self.links.append(shop.token(done))
        elif word in ("approve", "deny"):
            link = self.links[value % len(self.links)] if self.links else "none"
            await getattr(shop.cards.redeeming, word)(link)
        elif word == "revoke":
            await shop.cards.use_cases.revoke(self.card, self.who, reason="test")
        elif word == "refund":
            await shop.fund(ME, 1)
            await shop.cards.use_cases.refund_to_sats(self.card, self.who, account=None)
        elif word == "words":
            _, self.code = await shop.cards.use_cases.reveal(self.card, self.who, again=True)
        elif word == "late":
            shop.clock.moment += timedelta(days=1)
            await shop.cards.redeeming.expire_overdue()
        else:
            shop.rates.is_gone = not shop.rates.is_gone

    async def check(self) -> None:
        view = await self.shop.cards.use_cases.view(self.card)
        query = select(gift_redemptions.c.state, gift_redemptions.c.cents).where(
            gift_redemptions.c.card == self.card
        )
        rows = await self.shop.store.read(lambda conn: list(conn.execute(query)))
        granted = sum(row.cents for row in rows if row.state == "granted")
        waits = sum(row.cents for row in rows if row.state == "pending_approval")
        assert view.held == waits
        assert view.left >= 0
        ended = view.card.state in (CardState.REFUNDED, CardState.REVOKED)
        if ended:
            assert granted <= 5000 - view.left
            assert waits == 0
        else:
            assert granted + waits + view.left == 5000
        assert (view.card.state is CardState.SPENT) == (granted == 5000)


async def test_unknown_spent_and_revoked_words_cost_the_same_statements(shop: Shop) -> None:
    """So that not even the time of an answer tells them apart: the work is the same, line for line."""
    spent, revoked = await shop.card(700), await shop.card(700)
    await shop.redeem(spent.code, caller=ME)
    await shop.cards.use_cases.revoke(revoked.card.id, Who(claim=revoked.claim.token), reason="test")
    asked: list[list[str]] = []

    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        # The loop behind approvals looks at its own tables meanwhile; its words have no code in them.
        if "gift_" in statement and "expires_at) " not in statement and "expires_at <=" not in statement:
            asked[-1].append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        for code in (spent.code, revoked.code, "zoom-zoom-zoom-zoom"):
            asked.append([])
            with pytest.raises(NotFound):
                await shop.redeem(code, caller=ME, request_id="another-request-id")
            with pytest.raises(NotFound):
                await shop.cards.redeeming.balance(code or "")
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert asked[0] == asked[1] == asked[2]
    assert asked[0]
