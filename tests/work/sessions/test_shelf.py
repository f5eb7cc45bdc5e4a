"""What sessions keep is bounded for each account and for all together, and the oldest goes first."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandboxer.kernel.errors import NoCapacity, OverBudget
from sandboxer.work.sessions.cells import CELL_COSTS, PIECE_COSTS, Cell, Status
from sandboxer.work.sessions.shelf import KeptCells, Shelf, ShelfBounds

NOW = datetime(2026, 11, 16, tzinfo=UTC)
KIB = 1024
BOUNDS = ShelfBounds(host_bytes=200 * KIB, account_bytes=100 * KIB, little_bytes=10 * KIB)


def run(kept: KeptCells, n: int, said: int = 8 * KIB, *, ends: bool = True) -> Cell:
    cell = Cell(n=n, code="", timeout_s=1.0, asked_at=NOW)
    kept.add(cell)
    cell.print(1, b"x" * said)
    if ends:
        cell.end(Status.OK, at=NOW)
        kept.has_ended(cell)
    return cell


def test_many_sessions_of_an_account_keep_no_more_than_one_may() -> None:
    shelf = Shelf(BOUNDS)
    sessions = [shelf.open(f"ses_{number}", "alice") for number in range(30)]
    for number, kept in enumerate(sessions):
        run(kept, 1)
        run(kept, 2)
        assert kept.cells[2].text(1), "the newest is kept"
        assert shelf.held_by("alice") <= BOUNDS.account_bytes, number
    assert not sessions[0].cells, "the oldest went first"


def test_when_all_together_hold_too_much_who_holds_most_loses_the_oldest() -> None:
    shelf = Shelf(BOUNDS)
    small = shelf.open("ses_small", "small")
    run(small, 1)
    for account in ("alice", "bob", "carol"):
        kept = shelf.open(f"ses_{account}", account)
        for n in range(1, 10):
            run(kept, n)
    assert shelf.held <= BOUNDS.host_bytes
    assert 1 in small.cells
    assert all(shelf.held_by(account) for account in ("alice", "bob", "carol"))


def test_where_nothing_can_be_dropped_output_is_cut_and_code_is_refused() -> None:
    shelf = Shelf(BOUNDS)
    runs = run(shelf.open("ses_1", "alice"), 1, said=60 * KIB, ends=False)
    other = shelf.open("ses_2", "alice")
    cut = run(other, 1, said=60 * KIB, ends=False)
    assert cut.truncated
    assert not cut.text(1)
    assert not runs.truncated
    with pytest.raises(OverBudget):
        other.add(Cell(n=2, code="x" * 60 * KIB, timeout_s=1.0, asked_at=NOW))


def test_a_full_shelf_leaves_everybody_a_little() -> None:
    shelf = Shelf(BOUNDS)
    for account in ("alice", "bob"):
        run(shelf.open(f"ses_{account}", account), 1, said=96 * KIB, ends=False)
    late = shelf.open("ses_late", "late")
    assert run(late, 1, said=4 * KIB).text(1)
    with pytest.raises(NoCapacity):
        late.add(Cell(n=2, code="x" * 20 * KIB, timeout_s=1.0, asked_at=NOW))


def test_a_session_that_is_over_holds_nothing_whatever_is_still_said() -> None:
    shelf = Shelf(BOUNDS)
    kept = shelf.open("ses_1", "alice")
    cell = run(kept, 1, ends=False)
    assert shelf.held == cell.size >= CELL_COSTS + PIECE_COSTS + 8 * KIB
    assert kept.hold(70 * KIB)
    shelf.close("ses_1")
    cell.print(1, b"more")
    cell.end(Status.OK, at=NOW)
    kept.has_ended(cell)
    assert not kept.hold(70 * KIB)
    assert shelf.held == shelf.held_by("alice") == 0
