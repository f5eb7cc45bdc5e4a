"""What a child gets, what flows back, and in which order things end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sqlalchemy import Connection, insert, select, update

from sandboxer.accounts import records
from sandboxer.accounts.audit import page
from sandboxer.accounts.authority import KeyState, load_authority
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.delegation import Node, below, children, find_below, load_key, top_up, tree
from sandboxer.accounts.records import Status
from sandboxer.accounts.revocation import (
    ENDING,
    Act,
    Step,
    ending,
    expire_due,
    finish,
    finish_all,
    next_expiry,
    plan_revocation,
    revoke,
    revoke_cut_by,
)
from sandboxer.identity.keys import keys
from sandboxer.kernel.errors import Conflict, Forbidden, InsufficientCredit, NotFound
from sandboxer.money.buckets import credit, load_bucket, settle_account
from sandboxer.money.ledger import LOSS, balance
from sandboxer.money.metering import charge_once, close_meter, hold_slice, open_meter
from sandboxer.money.policy import Standing, Use
from sandboxer.money.verification import verify
from sandboxer.observe.events import events
from sandboxer.payments.credits import credit_final, pending_begin, pending_fail, reverse_final
from sandboxer.wire.operations.declaration import Scope
from tests.support.accounts import NOW, child_of, later, rich, sats_of


def use(conn: Connection, account: str, sats: int, *, at: float = 0, msats: int = 0) -> None:
    """Run something that costs so much, from `at` on, for one second."""
    id = f"{account}:{at}"
    open_meter(
        conn, account, id=id, subject="sbx_1", use=Use.RUNNING, rate=sats * 1000 + msats, now=later(at)
    )
    close_meter(conn, id, now=later(at + 1))


def end(conn: Connection, account: str, *, at: float = 100) -> None:
    steps = revoke(conn, account, actor="test", reason="asked", now=later(at)).steps
    for step in steps:
        if step.act is Act.RELEASE:
            finish(conn, step.account, now=later(at))


def test_a_budget_is_moved_into_the_childs_own_bucket(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    child = child_of(conn, root, budget_sats=300, scopes=frozenset({Scope.EXEC}), depth=2, slots=3)
    assert (sats_of(conn, root), sats_of(conn, child.account)) == (700, 300)
    assert child.ancestry == (root, child.account)
    assert (child.generation, child.depth, child.slots, child.state) == (1, 2, 3, KeyState.ACTIVE)
    assert load_authority(conn, child.account).scopes == {Scope.EXEC}
    assert verify(conn).is_whole


def test_no_more_is_given_than_the_parent_has_and_nothing_is_left_of_the_attempt(conn: Connection) -> None:
    root = rich(conn, sats=100)
    with pytest.raises(InsufficientCredit), conn.begin_nested():
        child_of(conn, root, budget_sats=101)
    assert children(conn, root) == []
    child_of(conn, root, budget_sats=100)
    with pytest.raises(InsufficientCredit):
        child_of(conn, root, budget_sats=1)


def test_what_runs_keeps_its_reserve_when_its_owner_gives_all_it_can(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    open_meter(conn, root, id="m", subject="sbx_1", use=Use.RUNNING, rate=1000, now=NOW)
    with pytest.raises(InsufficientCredit), conn.begin_nested():
        child_of(conn, root, budget_sats=401)
    child_of(conn, root, budget_sats=400)


def test_a_parent_that_gave_everything_away_is_not_dry(conn: Connection) -> None:
    root = rich(conn, sats=100)
    child_of(conn, root, budget_sats=100)
    bucket = settle_account(conn, root, now=later(10**6))
    assert bucket.health.standing is Standing.ALIVE
    assert bucket.dry_at is None


def test_unspent_budget_flows_back_and_the_account_is_closed(conn: Connection) -> None:
    root = rich(conn, sats=1000)
    child = child_of(conn, root, budget_sats=300)
    use(conn, child.account, 120)
    end(conn, child.account)
    ended = load_key(conn, child.account)
    assert (ended.returned_sats, ended.kept_sats, ended.state) == (180, 0, KeyState.ENDED)
    assert sats_of(conn, root) == 880
    assert records.load(conn, child.account).status is Status.CLOSED
    assert verify(conn).is_whole


@pytest.mark.parametrize(
    ("used", "returned", "kept"),
    # Budget 100 and 50 from outside: the budget is used up first.
    [(0, 100, 50), (60, 40, 50), (100, 0, 50), (130, 0, 20), (150, 0, 0)],
)
def test_what_outsiders_paid_never_flows_up(conn: Connection, used: int, returned: int, kept: int) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=100)
    credit(conn, child.account, 50, id="gift", reason="a stranger paid", now=NOW)
    if used:
        use(conn, child.account, used)
    end(conn, child.account)
    ended = load_key(conn, child.account)
    assert (ended.returned_sats, ended.kept_sats) == (returned, kept)
    assert (sats_of(conn, root), sats_of(conn, child.account)) == (returned, kept)


@pytest.mark.parametrize("used", [0, 60, 130])
def test_an_outside_payment_that_was_taken_back_leaves_the_parents_budget_alone(
    conn: Connection, used: int
) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=100)
    pending_begin(conn, child.account, 50, payment_id="pay_1", at_most=50, source="x402", now=NOW)
    credit_final(conn, child.account, 30, id="paid_2", source="invoice", now=NOW)
    if used:
        use(conn, child.account, used)
    pending_fail(conn, child.account, payment_id="pay_1", reason="expired", now=later(2))
    reverse_final(conn, child.account, 30, id="reorged_2", reason="reorganised", now=later(2))
    assert tree(conn, root, now=later(2)).children[0].totals.outside == 0
    end(conn, child.account)
    ended = load_key(conn, child.account)
    assert (ended.returned_sats, ended.kept_sats) == (max(0, 100 - used), 0)
    assert sats_of(conn, root) == max(0, 100 - used)
    assert verify(conn).is_whole


def test_a_payment_taken_back_and_paid_again_is_counted_once(conn: Connection) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=100)
    for attempt in range(2):
        credit_final(conn, child.account, 50, id=f"paid:{attempt}", source="x402", now=NOW)
        if attempt == 0:
            reverse_final(conn, child.account, 50, id="reorged", reason="reorganised", now=NOW)
    end(conn, child.account)
    assert (load_key(conn, child.account).returned_sats, sats_of(conn, child.account)) == (100, 50)


def test_outsiders_money_does_not_flow_up_by_way_of_a_grandchild_either(conn: Connection) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=100)
    credit(conn, child.account, 50, id="gift", reason="a stranger paid", now=NOW)
    grandchild = child_of(conn, child.account, budget_sats=150, depth=0)
    use(conn, grandchild.account, 120)
    end(conn, child.account)
    assert sats_of(conn, root) == 0
    assert load_key(conn, child.account).kept_sats == 30


def test_money_that_comes_after_the_end_stays_where_it_was_paid(conn: Connection) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=100)
    end(conn, child.account)
    credit(conn, child.account, 77, id="late", reason="a stranger paid", now=later(200))
    assert not finish(conn, child.account, now=later(300)).is_new
    assert (sats_of(conn, root), sats_of(conn, child.account)) == (100, 77)


def test_fractions_of_a_sat_in_short_lived_children_are_not_free(conn: Connection) -> None:
    root = rich(conn, sats=100)
    for number in range(10):
        child = child_of(conn, root, budget_sats=10)
        use(conn, child.account, 0, msats=900, at=number * 2)
        end(conn, child.account, at=number * 2 + 1)
    assert sats_of(conn, root) == 91
    assert verify(conn).is_whole


def test_a_child_that_ran_longer_than_its_budget_owes_nothing(conn: Connection) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=10)
    use(conn, child.account, 25)
    bucket = load_bucket(conn, child.account)
    assert (bucket.posted, bucket.debt) == (0, 0)
    end(conn, child.account)
    assert sats_of(conn, root) == 90
    assert balance(conn, LOSS).posted == 0
    assert verify(conn).is_whole


def test_a_debt_of_a_child_is_a_loss_and_not_its_parents(conn: Connection) -> None:
    root = rich(conn, sats=100)
    child = child_of(conn, root, budget_sats=10)
    # Bytes that left are not time: they are told when they have left.
    charge_once(conn, child.account, id="bytes", subject="sbx_x", use=Use.EGRESS, msats=25_000, now=NOW)
    assert load_bucket(conn, child.account).debt == 15
    end(conn, child.account)
    assert sats_of(conn, root) == 90
    assert balance(conn, LOSS).posted == -15
    assert verify(conn).is_whole


def family(conn: Connection) -> tuple[str, str, str, str, str]:
    """root → a → b → c, and d beside b."""
    root = rich(conn, sats=1000)
    a = child_of(conn, root, budget_sats=500, depth=3).account
    b = child_of(conn, a, budget_sats=200, depth=2).account
    c = child_of(conn, b, budget_sats=100, depth=1).account
    d = child_of(conn, a, budget_sats=50, depth=0).account
    return root, a, b, c, d


def test_a_subtree_ends_bottom_up_stop_destroy_settle_release(conn: Connection) -> None:
    _root, a, b, c, d = family(conn)
    planned = revoke(conn, a, actor="test", reason="asked", now=NOW).steps
    assert planned == tuple(Step(act, account) for account in (c, *sorted((b, d)), a) for act in Act)
    reported = conn.execute(select(events.c.subject).where(events.c.kind == ENDING).order_by(events.c.id))
    assert reported.scalars().all() == [c, *sorted((b, d)), a]


def test_the_plan_does_not_depend_on_the_order_in_which_keys_are_found(conn: Connection) -> None:
    root, *_ = family(conn)
    found = below(conn, root)
    planned = plan_revocation(found)
    for _ in range(10):
        random.Random(3).shuffle(found)
        assert plan_revocation(found) == planned
    assert plan_revocation([replace(key, state=KeyState.ENDED) for key in found]) == ()


def test_nothing_is_released_before_what_is_below_has_ended(conn: Connection) -> None:
    root, a, b, c, d = family(conn)
    revoke(conn, a, actor="test", reason="asked", now=NOW)
    for account in (a, b):
        with pytest.raises(Conflict, match="below"):
            finish(conn, account, now=NOW)
    assert [release.account for release in finish_all(conn, [a, b, c, d], now=NOW)] == [c, *sorted((b, d)), a]
    assert sats_of(conn, root) == 1000
    assert ending(conn) == []


def test_nothing_is_released_while_something_runs_or_is_held(conn: Connection) -> None:
    root = rich(conn)
    child = child_of(conn, root).account
    open_meter(conn, child, id="m", subject="sbx_1", use=Use.RUNNING, rate=10, now=NOW)
    revoke(conn, child, actor="test", reason="asked", now=NOW)
    with pytest.raises(Conflict, match="meter"):
        finish(conn, child, now=NOW)
    close_meter(conn, "m", now=NOW)
    hold_slice(conn, child, id="h", rate=10, reason="create", now=NOW)
    with pytest.raises(Conflict, match="hold"):
        finish(conn, child, now=NOW)
    assert [key.account for key in ending(conn)] == [child]


def test_revoking_shuts_every_key_below_at_once_and_twice_is_harmless(conn: Connection) -> None:
    root, a, b, c, d = family(conn)
    for account in (a, b, c, d):
        conn.execute(
            keys.insert().values(
                public_key=load_key(conn, account).public_key,
                account=account,
                name="",
                sealed_secret=b"",
                is_owner=False,
                accepts_v1=False,
                created_at=NOW,
            )
        )
    first = revoke(conn, a, actor="test", reason="asked", now=NOW)
    assert set(first.public_keys) == {load_key(conn, x).public_key for x in (a, b, c, d)}
    assert conn.execute(select(keys.c.public_key).where(keys.c.revoked_at.is_(None))).all() == []
    assert all(load_authority(conn, x).refused_why for x in (a, b, c, d))
    assert load_authority(conn, root).refused_why is None
    finish(conn, c, now=NOW)
    again = revoke(conn, a, actor="test", reason="asked", now=NOW)
    assert {step.account for step in again.steps} == {a, b, d}


def test_a_key_ends_at_its_time_with_all_below_it(conn: Connection) -> None:
    root = rich(conn)
    short = child_of(conn, root, expires_at=later(60)).account
    below_it = child_of(conn, short, budget_sats=1, depth=0).account
    long = child_of(conn, root, expires_at=later(600)).account
    assert load_key(conn, below_it).expires_at == later(60)
    assert next_expiry(conn) == later(60)
    assert expire_due(conn, now=later(59)) == []
    expire_due(conn, now=later(60))
    assert {key.account for key in ending(conn)} == {short, below_it}
    assert next_expiry(conn) == later(600)
    assert load_key(conn, long).state is KeyState.ACTIVE


def test_an_end_set_or_shortened_later_ends_the_whole_subtree_at_that_moment(conn: Connection) -> None:
    root = rich(conn)
    first = child_of(conn, root, expires_at=later(3600))
    second = child_of(conn, first.account, budget_sats=50, depth=1)
    third = child_of(conn, second.account, budget_sats=10, depth=0)
    bystander = child_of(conn, root)
    for name, account, ends in (("key-of-acc_root", root, None), (first.public_key, first.account, 3600)):
        put_key(conn, name, account, ends)
    assert next_expiry(conn) == later(3600)

    # The key that the root holds, and that cut no one of these: nothing happens to them.
    put_key(conn, "another", root, 10)
    assert next_expiry(conn) == later(3600)

    conn.execute(update(keys).where(keys.c.public_key == first.public_key).values(expires_at=later(60)))
    assert next_expiry(conn) == later(60)
    assert expire_due(conn, now=later(59)) == []
    expire_due(conn, now=later(60))
    assert {key.account for key in ending(conn)} == {first.account, second.account, third.account}
    assert load_key(conn, bystander.account).state is KeyState.ACTIVE

    # The ordinary key that cut what is left.
    conn.execute(update(keys).where(keys.c.public_key == "key-of-acc_root").values(expires_at=later(90)))
    assert next_expiry(conn) == later(90)
    expire_due(conn, now=later(90))
    assert load_key(conn, bystander.account).state is KeyState.ENDING
    assert next_expiry(conn) is None


def test_what_a_key_cuts_ends_with_it_also_by_its_own_record(conn: Connection) -> None:
    root = rich(conn)
    put_key(conn, f"key-of-{root}", root, 60)
    assert child_of(conn, root).expires_at == later(60)
    with pytest.raises(Forbidden, match="expires_at"):
        child_of(conn, root, expires_at=later(61))


def put_key(conn: Connection, name: str, account: str, ends: float | None) -> None:
    conn.execute(
        insert(keys).values(
            public_key=name,
            account=account,
            name="",
            sealed_secret=b"",
            is_owner=False,
            accepts_v1=False,
            created_at=NOW,
            expires_at=None if ends is None else later(ends),
        )
    )


def test_what_an_ordinary_key_cut_ends_with_that_key(conn: Connection) -> None:
    root = rich(conn)
    mine = child_of(conn, root).account
    ended = revoke_cut_by(conn, f"key-of-{root}", actor="test", reason="key revoked", now=NOW)
    assert [step.account for r in ended for step in r.steps if step.act is Act.STOP] == [mine]
    assert revoke_cut_by(conn, "another", actor="test", reason="key revoked", now=NOW) == []


def test_more_can_be_given_once_per_id_by_the_parent_only(conn: Connection) -> None:
    root, a, b, _c, _d = family(conn)
    for _ in range(2):
        top_up(conn, a, b, 30, id="more", cut_by="pk", now=NOW)
    assert load_bucket(conn, b).posted == 130
    for stranger in (root, b):
        with pytest.raises(NotFound):
            top_up(conn, stranger, b, 1, id="x", cut_by="pk", now=NOW)
    revoke(conn, b, actor="test", reason="asked", now=NOW)
    with pytest.raises(Conflict):
        top_up(conn, a, b, 1, id="late", cut_by="pk", now=NOW)


def test_a_retried_top_up_is_neither_refused_nor_written_down_twice(conn: Connection) -> None:
    root = rich(conn)
    child = child_of(conn, root, budget_sats=10).account
    records.set_caps(conn, root, Caps(per_key_sats=40), actor="test", reason="test", now=NOW)
    for _ in range(2):
        top_up(conn, root, child, 30, id="more", cut_by="pk", now=NOW)
    with pytest.raises(Conflict):
        top_up(conn, root, child, 31, id="more", cut_by="pk", now=NOW)
    revoke(conn, child, actor="test", reason="asked", now=NOW)
    top_up(conn, root, child, 30, id="more", cut_by="pk", now=NOW)
    assert load_bucket(conn, child).posted == 40
    assert [entry.action for entry in page(conn, subject=root)].count("delegation.top_up") == 1


def by_account(node: Node) -> dict[str, Node]:
    return {node.account: node} | {k: v for child in node.children for k, v in by_account(child).items()}


def test_the_tree_shows_every_node_with_its_spending(conn: Connection) -> None:
    root, a, b, c, d = family(conn)
    use(conn, c, 7)
    use(conn, d, 50)
    credit(conn, d, 5, id="gift", reason="a stranger paid", now=later(2))
    open_meter(conn, b, id="m", subject="sbx_2", use=Use.RUNNING, rate=1500, now=later(10))
    seen = by_account(tree(conn, root, now=later(20)))
    assert set(seen) == {root, a, b, c, d}
    assert {x: seen[x].totals.spent for x in (root, a, b, c, d)} == {root: 0, a: 0, b: 15, c: 7, d: 50}
    assert {x: seen[x].subtree_spent for x in (root, a, b)} == {root: 72, a: 72, b: 22}
    assert (seen[d].totals.given, seen[d].totals.outside, seen[d].totals.balance) == (50, 5, 5)
    assert (seen[a].totals.given, seen[a].totals.passed_on, seen[a].totals.balance) == (500, 250, 250)
    assert seen[b].totals.balance == 85
    assert set(by_account(tree(conn, b, now=later(20)))) == {b, c}


def test_a_key_below_is_found_and_any_other_is_as_good_as_none(conn: Connection) -> None:
    root, a, b, c, d = family(conn)
    public = {x: load_key(conn, x).public_key for x in (a, b, c, d)}
    assert find_below(conn, root, public[c]).account == c
    assert find_below(conn, a, public[c]).account == c
    for who, whom in ((b, public[d]), (b, public[b]), (c, public[a]), ("acc_nobody", public[a]), (root, "x")):
        with pytest.raises(NotFound) as caught:
            find_below(conn, who, whom)
        assert str(caught.value) == f"No such delegated key: {whom}"
