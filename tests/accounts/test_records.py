from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from sqlalchemy import Connection, select

from sandboxer.accounts import records
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.records import TRANSITIONS, Change, Kind, Status
from sandboxer.kernel.errors import Conflict, IllegalTransition, InvalidRequest, NotFound
from sandboxer.money.metering import close_meter, hold_slice, open_meter, release
from sandboxer.money.policy import Use
from sandboxer.observe.events import events
from tests.support.accounts import NOW, child_of, later, rich


@pytest.mark.parametrize(("status", "change"), list(itertools.product(Status, Change)))
def test_every_cell_of_the_table_is_a_move_or_a_refusal(status: Status, change: Change) -> None:
    if (status, change) in TRANSITIONS:
        assert records.next_status(status, change) in Status
    else:
        with pytest.raises(IllegalTransition):
            records.next_status(status, change)


def test_nothing_leads_out_of_closed() -> None:
    assert not [key for key in TRANSITIONS if key[0] is Status.CLOSED]


def test_an_account_is_made_with_a_bucket_a_public_id_and_an_event(conn: Connection) -> None:
    made = records.create(conn, name="agent", actor="op", reason="asked", now=NOW)
    assert made.id.startswith("acc_")
    assert made.public_id.startswith("pub_")
    assert made.id not in made.public_id
    assert records.find_public(conn, made.public_id) == made
    assert records.has_bucket(conn, made.id)
    kinds = conn.execute(select(events.c.kind).where(events.c.subject == made.id)).scalars().all()
    assert kinds == ["account.created"]


def test_an_id_is_taken_once_and_has_a_plain_form(conn: Connection) -> None:
    rich(conn, "acc_one")
    with pytest.raises(Conflict):
        records.create(conn, id="acc_one", actor="op", reason="asked", now=NOW)
    for bad in ("A", "a/b", "a b", "x" * 64, "../x", "-a"):
        with pytest.raises(InvalidRequest):
            records.create(conn, id=bad, actor="op", reason="asked", now=NOW)


def test_an_account_identity_has_proven_gets_its_record_at_first_sight(conn: Connection) -> None:
    first = records.ensure(conn, "search-team", actor="key:x", now=NOW)
    assert records.ensure(conn, "search-team", actor="key:x", now=later(5)) == first
    assert records.ensure(conn, "owner", actor="key:x", now=NOW).kind is Kind.OWNER


def test_suspending_twice_changes_nothing_and_closing_is_for_good(conn: Connection) -> None:
    rich(conn, "acc_a")
    for _ in range(2):
        suspended = records.change_status(conn, "acc_a", Change.SUSPEND, actor="op", reason="abuse", now=NOW)
        assert (suspended.status, suspended.status_reason) == (Status.SUSPENDED, "abuse")
    records.change_status(conn, "acc_a", Change.REINSTATE, actor="op", reason="mistake", now=NOW)
    records.change_status(conn, "acc_a", Change.CLOSE, actor="op", reason="asked", now=NOW)
    with pytest.raises(IllegalTransition):
        records.change_status(conn, "acc_a", Change.SUSPEND, actor="op", reason="x", now=NOW)
    kinds = conn.execute(select(events.c.kind).where(events.c.subject == "acc_a").order_by(events.c.id))
    wanted = ["account.created", "account.suspended", "account.reinstated", "account.closed"]
    assert kinds.scalars().all() == wanted


def test_a_change_needs_a_reason_and_an_account(conn: Connection) -> None:
    rich(conn, "acc_a")
    with pytest.raises(InvalidRequest):
        records.change_status(conn, "acc_a", Change.SUSPEND, actor="op", reason=" ", now=NOW)
    with pytest.raises(NotFound):
        records.change_status(conn, "acc_none", Change.SUSPEND, actor="op", reason="x", now=NOW)


def test_the_owners_account_can_be_neither_suspended_nor_closed(conn: Connection) -> None:
    records.ensure(conn, "owner", actor="key:x", now=NOW)
    for change in (Change.SUSPEND, Change.CLOSE):
        with pytest.raises(Conflict):
            records.change_status(conn, "owner", change, actor="op", reason="x", now=NOW)


def test_an_account_closes_only_when_nothing_is_held_runs_or_lives_below_it(conn: Connection) -> None:
    rich(conn, "acc_a")

    def close() -> None:
        records.change_status(conn, "acc_a", Change.CLOSE, actor="op", reason="asked", now=NOW)

    hold_slice(conn, "acc_a", id="h", rate=100, reason="create", now=NOW)
    with pytest.raises(Conflict, match="hold"):
        close()
    release(conn, "acc_a", "h", reason="failed", now=NOW)
    open_meter(conn, "acc_a", id="m", subject="sbx_1", use=Use.RUNNING, rate=0, now=NOW)
    with pytest.raises(Conflict, match="meter"):
        close()
    close_meter(conn, "m", now=NOW)
    child_of(conn, "acc_a")
    with pytest.raises(Conflict, match="delegated"):
        close()


def test_a_tier_counts_until_its_moment_and_not_at_it(conn: Connection) -> None:
    rich(conn, "acc_a")
    until = NOW + timedelta(days=30)
    account = records.entitle(conn, "acc_a", tier=5, until=until, actor="op", reason="paid", now=NOW)
    assert account.tier_at(until - timedelta(microseconds=1)) == 5
    assert account.tier_at(until) is None
    for bad in ({"tier": 33, "until": until}, {"tier": 0, "until": until}, {"tier": 1, "until": None}):
        with pytest.raises(InvalidRequest):
            records.entitle(conn, "acc_a", actor="op", reason="x", now=NOW, **bad)


def test_caps_are_kept_with_the_account(conn: Connection) -> None:
    rich(conn, "acc_a")
    caps = Caps(per_day_sats=10, per_sandbox_sats=0)
    records.set_caps(conn, "acc_a", caps, actor="op", reason="asked", now=NOW)
    assert records.load(conn, "acc_a").caps == caps


def test_accounts_are_listed_oldest_first_page_by_page(conn: Connection) -> None:
    for number in range(5):
        records.create(conn, id=f"acc_{number}", actor="op", reason="x", now=later(number // 2))
    seen: list[str] = []
    while page := records.page(conn, after=seen[-1] if seen else None, limit=2):
        seen += [account.id for account in page]
    assert seen == [f"acc_{number}" for number in range(5)]
