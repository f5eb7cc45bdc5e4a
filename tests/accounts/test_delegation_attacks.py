"""A delegated key that tries to have more than it was given."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.event import listen

from sandboxer.accounts import records
from sandboxer.accounts.authority import ALL_SCOPES, demand, demand_active, load_authority, parse_scopes
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.delegation import (
    MAX_CHILDREN,
    MAX_NODES,
    Allowance,
    Cut,
    attenuate,
    cut,
    load_key,
    tree,
)
from sandboxer.accounts.limits import LimitPolicy
from sandboxer.accounts.records import Change, Kind, accounts, delegated_keys
from sandboxer.accounts.revocation import ENDING, finish, revoke
from sandboxer.kernel.errors import (
    Conflict,
    Forbidden,
    IllegalTransition,
    InsufficientCredit,
    InvalidRequest,
    NotFound,
    SandboxerError,
)
from sandboxer.observe.events import events
from sandboxer.wire.operations.declaration import Scope
from tests.support.accounts import NOW, a_key, child_of, later, rich

BOUND = {
    "budget_sats": 100,
    "scopes": frozenset({Scope.EXEC, Scope.KEYS_DELEGATE}),
    "depth": 2,
    "slots": 5,
    "expires_at": later(600),
    "caps": Caps(per_day_sats=80),
}
MODEST = {"budget_sats": 10, "scopes": frozenset({Scope.EXEC}), "depth": 1, "slots": 1}


@pytest.fixture
def bound(conn: Connection) -> str:
    return child_of(conn, rich(conn), **BOUND).account


@pytest.mark.parametrize(
    "greed",
    [
        {"budget_sats": 101},
        {"budget_sats": 81},
        {"scopes": frozenset({Scope.SANDBOXES_CREATE})},
        {"scopes": ALL_SCOPES},
        {"depth": 2},
        {"depth": 3},
        {"slots": 6},
        {"slots": None},
        {"expires_at": later(601)},
        {"expires_at": later(10**8)},
    ],
    # A set has no order, and all test processes must know a test by the same name.
    ids=lambda value: (
        ", ".join(f"{k}={sorted(v) if isinstance(v, frozenset) else v}" for k, v in value.items())
        if isinstance(value, dict)
        else str(value)
    ),
)
def test_no_axis_can_grow(conn: Connection, bound: str, greed: dict[str, Any]) -> None:
    with pytest.raises((Forbidden, InsufficientCredit)):
        child_of(conn, bound, **{**MODEST, **greed})


@pytest.mark.parametrize(
    "nonsense",
    [
        {"budget_sats": -1},
        {"budget_sats": True},
        {"budget_sats": 0.5},
        {"budget_sats": 10**20},
        {"depth": -1},
        {"slots": -1},
        {"expires_at": NOW},
        {"expires_at": NOW - timedelta(days=1)},
        {"expires_at": datetime(2026, 3, 1, 12, 5)},
        {"name": "x" * 201},
    ],
    ids=str,
)
def test_nonsense_is_refused(conn: Connection, bound: str, nonsense: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        child_of(conn, bound, **{**MODEST, **nonsense})


def test_what_is_not_asked_for_is_bound_by_the_parent_all_the_same(conn: Connection, bound: str) -> None:
    child = child_of(conn, bound, **MODEST, caps=Caps(per_day_sats=10**6))
    assert child.expires_at == later(600)
    assert records.load(conn, child.account).caps == Caps(per_day_sats=80)


def test_slots_given_to_children_and_used_by_oneself_add_up(conn: Connection, bound: str) -> None:
    child_of(conn, bound, **{**MODEST, "slots": 3})
    with pytest.raises(Forbidden, match="1 slots left"):
        child_of(conn, bound, **{**MODEST, "slots": 2}, slots_in_use=1)
    last = child_of(conn, bound, **{**MODEST, "slots": 2})
    with pytest.raises(Forbidden, match="0 slots left"):
        child_of(conn, bound, **{**MODEST, "slots": 1})
    revoke(conn, last.account, actor="t", reason="x", now=NOW)
    with pytest.raises(Forbidden, match="0 slots left"):
        child_of(conn, bound, **{**MODEST, "slots": 1})
    finish(conn, last.account, now=NOW)
    child_of(conn, bound, **{**MODEST, "slots": 2})


def test_depth_runs_out(conn: Connection) -> None:
    parent = rich(conn)
    for depth in range(7, -1, -1):
        parent = child_of(conn, parent, budget_sats=10, depth=depth).account
    with pytest.raises(Forbidden, match="no further generation"):
        child_of(conn, parent, budget_sats=1, depth=0)


def test_a_tier_bounds_how_many_generations_follow_and_only_while_it_lasts(conn: Connection) -> None:
    policy = LimitPolicy(depths={0: 1, 8: 2})
    root, ends = rich(conn), NOW + timedelta(days=1)

    def cut_below(parent: str, depth: int, now: datetime = NOW) -> str:
        return child_of(conn, parent, budget_sats=10, depth=depth, policy=policy, now=now).account

    with pytest.raises(Forbidden) as refused:
        cut_below(root, 1)
    assert (refused.value.facts["axis"], refused.value.facts["reason"]) == ("depth", "tier_depth")
    with pytest.raises(Forbidden, match="1 more generations"):
        cut_below(root, 1)
    assert cut_below(root, 0)
    records.entitle(conn, root, tier=9, until=ends, actor="op", reason="paid", now=NOW)
    child = cut_below(root, 1)
    cut_below(child, 0)
    assert load_authority(conn, child).depth_left(now=NOW, policy=policy) == 1
    # What was made goes on; nothing follows below it any more.
    assert load_authority(conn, child).depth_left(now=ends, policy=policy) == 0
    with pytest.raises(Forbidden, match="0 more generations"):
        cut_below(child, 0, now=ends)


def test_a_key_without_the_scope_to_delegate_cuts_nothing(conn: Connection) -> None:
    child = child_of(conn, rich(conn), scopes=ALL_SCOPES - {Scope.KEYS_DELEGATE}).account
    with pytest.raises(Forbidden, match="keys:delegate"):
        child_of(conn, child, scopes=frozenset())


def test_nothing_is_cut_below_a_revoked_key_or_below_its_children(conn: Connection) -> None:
    root = rich(conn)
    a = child_of(conn, root).account
    b = child_of(conn, a, budget_sats=50, depth=2).account
    revoke(conn, a, actor="t", reason="x", now=NOW)
    for account in (a, b):
        with pytest.raises(Forbidden, match=r"revoked|above"):
            child_of(conn, account, budget_sats=1, depth=0)
    finish(conn, b, now=NOW)
    finish(conn, a, now=NOW)
    with pytest.raises(Forbidden):
        child_of(conn, a, budget_sats=0, depth=0)


def test_nothing_is_cut_below_an_expired_key_even_before_anyone_noticed(conn: Connection) -> None:
    a = child_of(conn, rich(conn), expires_at=later(60)).account
    b = child_of(conn, a, budget_sats=10, depth=2).account
    child_of(conn, b, budget_sats=1, depth=0, now=later(59))
    for account in (a, b):
        with pytest.raises(Forbidden, match="expired"):
            child_of(conn, account, budget_sats=1, depth=0, now=later(60))


def test_a_suspended_ancestor_stops_the_whole_subtree_and_reinstating_lets_it_go_on(conn: Connection) -> None:
    root = rich(conn)
    a = child_of(conn, root).account
    b = child_of(conn, a, budget_sats=10, depth=1).account
    records.change_status(conn, root, Change.SUSPEND, actor="op", reason="abuse", now=NOW)
    for account in (root, a, b):
        with pytest.raises(Forbidden):
            demand_active(load_authority(conn, account), now=NOW)
    # A child is told that it is not its own fault, and not more.
    assert "abuse" not in (load_authority(conn, b).refused_why or "")
    records.change_status(conn, root, Change.REINSTATE, actor="op", reason="mistake", now=NOW)
    demand(load_authority(conn, b), Scope.EXEC, now=NOW)


def test_no_cycle_can_be_made(conn: Connection) -> None:
    root = rich(conn)
    a = child_of(conn, root).account
    wish = Cut(scopes=frozenset({Scope.EXEC}))
    for ancestor in (root, a):
        with pytest.raises(Conflict):
            cut(conn, a, wish, public_key=a_key(), cut_by="pk", account=ancestor, now=NOW)
    with pytest.raises(Conflict):
        cut(conn, a, wish, public_key=load_key(conn, a).public_key, cut_by="pk", account="acc_new", now=NOW)


def test_an_account_or_key_of_someone_else_cannot_be_taken_as_a_child(conn: Connection) -> None:
    root, other = rich(conn), rich(conn, "acc_other")
    wish = Cut(scopes=frozenset({Scope.EXEC}))
    with pytest.raises(Conflict):
        cut(conn, root, wish, public_key=a_key(), cut_by="pk", account=other, now=NOW)
    for bad in ("", "sbx-pk-short", "acc_other"):
        with pytest.raises(InvalidRequest):
            cut(conn, root, wish, public_key=bad, cut_by="pk", now=NOW)


def test_an_account_that_says_it_is_delegated_and_is_not_may_do_nothing(conn: Connection) -> None:
    records.create(conn, id="acc_forged", kind=Kind.DELEGATED, actor="x", reason="x", now=NOW)
    forged = load_authority(conn, "acc_forged")
    assert forged.scopes == frozenset()
    with pytest.raises(Forbidden):
        demand_active(forged, now=NOW)


def test_guessed_ids_lead_nowhere(conn: Connection) -> None:
    rich(conn)
    for guess in ("acc_guess", "", "owner", "acc_root/acc_x", "%", "acc_%"):
        with pytest.raises(NotFound):
            revoke(conn, guess, actor="t", reason="x", now=NOW)
        with pytest.raises(NotFound):
            finish(conn, guess, now=NOW)
    with pytest.raises(NotFound):
        child_of(conn, "acc_guess")


def test_an_account_whose_name_is_a_pattern_or_a_prefix_is_not_in_anothers_subtree(conn: Connection) -> None:
    one, longer = rich(conn, "acc_a"), rich(conn, "acc_ab")
    mine = child_of(conn, one, budget_sats=50).account
    child_of(conn, longer, budget_sats=1)
    records.create(conn, id="accxa", actor="t", reason="x", now=NOW)
    steps = revoke(conn, mine, actor="t", reason="x", now=NOW).steps
    assert {step.account for step in steps} == {mine}


def test_a_living_key_cannot_be_finished_past_revocation(conn: Connection) -> None:
    child = child_of(conn, rich(conn)).account
    with pytest.raises(IllegalTransition):
        finish(conn, child, now=NOW)


def test_there_is_a_limit_to_living_children(conn: Connection) -> None:
    root = rich(conn)
    model = child_of(conn, root, budget_sats=0)
    row = {
        "parent": root,
        "root": root,
        "generation": 1,
        "cut_by": "pk",
        "name": "",
        "scopes": [],
        "depth": 0,
        "state": "active",
        "reason": "",
        "created_at": NOW,
    }
    rows = [
        {**row, "account": f"acc_{n}", "public_key": f"pk{n}", "path": f"{root}/acc_{n}"}
        for n in range(MAX_CHILDREN - 1)
    ]
    conn.execute(insert(delegated_keys), rows)
    with pytest.raises(Conflict, match="at most"):
        child_of(conn, root, budget_sats=0)
    assert model.parent == root


def rows_below(parent: str, root: str, count: int, *, generation: int = 1) -> list[dict[str, object]]:
    return [
        {
            "account": f"acc_{parent}_{n}",
            "public_key": f"pk-{parent}-{n}",
            "path": f"{root}/acc_{parent}_{n}" if parent == root else f"{root}/{parent}/acc_{parent}_{n}",
            "parent": parent,
            "root": root,
            "generation": generation,
            "cut_by": "pk",
            "name": "",
            "scopes": [],
            "depth": 0,
            "state": "active",
            "reason": "",
            "created_at": NOW,
        }
        for n in range(count)
    ]


def test_there_is_a_limit_to_living_keys_of_all_generations(conn: Connection) -> None:
    root = rich(conn)
    child = child_of(conn, root, depth=1, budget_sats=0).account
    conn.execute(insert(delegated_keys), rows_below("elsewhere", root, MAX_NODES - 1, generation=2))
    for parent in (root, child):
        with pytest.raises(Conflict, match="of all generations"):
            child_of(conn, parent, depth=0, budget_sats=0)


def test_ended_keys_do_not_close_the_tree_of_those_that_live(conn: Connection) -> None:
    """What ended is kept: whoever delegates for each task would be refused the tree some day."""
    root = rich(conn)
    child = child_of(conn, root, budget_sats=0).account
    rows = [{**row, "state": "ended"} for row in rows_below(root, root, MAX_NODES)]
    conn.execute(insert(delegated_keys), rows)
    assert [node.account for node in tree(conn, root, now=NOW).children] == [child]


def test_thousands_of_keys_end_in_few_statements(conn: Connection) -> None:
    """Nobody else writes meanwhile."""
    root = rich(conn)
    child = child_of(conn, root, depth=1, budget_sats=0).account
    rows = rows_below(child, root, 2000, generation=2)
    conn.execute(insert(delegated_keys), rows)
    model = conn.execute(select(accounts).where(accounts.c.id == child)).one()._asdict()
    copies = [{**model, "id": row["account"], "public_id": f"pub_{row['account']}"} for row in rows]
    conn.execute(insert(accounts), copies)
    said: list[str] = []
    listen(conn, "before_cursor_execute", lambda *given: said.append(given[2]))
    ended = revoke(conn, child, actor="t", reason="x", now=NOW)
    assert len(ended.public_keys) == 2001
    assert len(said) < 100
    reasons = select(delegated_keys.c.reason, func.count()).where(delegated_keys.c.state == "ending")
    counted = dict(conn.execute(reasons.group_by(delegated_keys.c.reason)).tuples().all())
    assert counted == {"x": 1, f"x (with {child})": 2000}
    told = select(events.c.subject).where(events.c.kind == ENDING).order_by(events.c.id)
    assert list(conn.execute(told).scalars())[-1] == child, "deepest first"


def test_unknown_scopes_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="root:everything"):
        parse_scopes(["exec", "root:everything"])


scope_sets = st.frozensets(st.sampled_from(list(Scope)))
moments = st.none() | st.integers(1, 1000).map(later)
caps = st.builds(Caps, per_day_sats=st.none() | st.integers(0, 100))
allowances = st.builds(
    Allowance,
    scopes=scope_sets,
    depth=st.integers(0, 5),
    slots=st.none() | st.integers(0, 10),
    expires_at=moments,
    caps=caps,
    tier_depth=st.integers(0, 5),
)
wishes = st.builds(
    Cut,
    name=st.just(""),
    budget_sats=st.integers(0, 100),
    scopes=scope_sets,
    depth=st.integers(0, 6),
    slots=st.none() | st.integers(0, 12),
    expires_at=moments,
    caps=caps,
)


@given(allowances, wishes)
def test_whatever_is_granted_is_within_the_parent_on_every_axis(parent: Allowance, wish: Cut) -> None:
    try:
        got = attenuate(parent, wish, now=NOW)
    except SandboxerError:
        return
    assert got.scopes <= parent.scopes
    assert got.depth < min(parent.depth, parent.tier_depth)
    assert parent.slots is None or (got.slots is not None and got.slots <= parent.slots)
    assert parent.expires_at is None or (got.expires_at is not None and got.expires_at <= parent.expires_at)
    limit = parent.caps.per_day_sats
    assert limit is None or (got.caps.per_day_sats is not None and got.caps.per_day_sats <= limit)
    assert got.scopes == wish.scopes
    assert got.budget_sats == wish.budget_sats
