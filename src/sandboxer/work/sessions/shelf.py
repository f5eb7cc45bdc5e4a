"""The shelf holds the cells of all sessions, and limits what they take in memory: for each session, for each
account (the one at the root of an ancestry) and for all together.

Cells are kept for hours, and requests hold their bytes for seconds. If both were taken from one budget, a few
accounts with many sessions would leave nothing to everybody's requests, so this is a sum of its own.

If an account would hold more than it may, its oldest ended cells are dropped; if all together would, those of
the account that holds most. What runs or waits is never dropped: if nothing else is left, nothing more is
kept. Each account may hold a little, however full the shelf is.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sandboxer.kernel.budget import SMALL, BudgetBounds
from sandboxer.kernel.errors import NoCapacity, OverBudget
from sandboxer.kernel.values import value_class
from sandboxer.work.sessions.cells import Cell

# How many ended cells of one session are kept, and how many bytes together; the last one is kept whole.
KEPT_CELLS = 200
KEPT_BYTES = 8 << 20


@value_class
class ShelfBounds:
    host_bytes: int = 256 << 20
    account_bytes: int = 64 << 20
    little_bytes: int = 2 << 20

    @classmethod
    def beside(cls, requests: BudgetBounds) -> ShelfBounds:
        """A quarter of what requests may hold."""
        return cls(host_bytes=requests.host_bytes // 4, account_bytes=requests.account_bytes // 4)


@dataclass(slots=True)
class _Holder:
    """What one account holds."""

    held: int = 0
    sessions: int = 0
    # Its ended cells, by session and number, the oldest first.
    ended: OrderedDict[tuple[str, int], KeptCells] = field(default_factory=OrderedDict)


class Shelf:
    def __init__(self, bounds: ShelfBounds | None = None) -> None:
        self._bounds = bounds or ShelfBounds()
        self._open: dict[str, KeptCells] = {}
        self._holders: dict[str, _Holder] = {}
        self.held = 0

    def open(self, session_id: str, account: str) -> KeptCells:
        """Returns the cells of a session: those it has already, or a place for its first."""
        if (kept := self._open.get(session_id)) is None:
            kept = self._open[session_id] = KeptCells(self, session_id, account)
            self._holders.setdefault(account, _Holder()).sessions += 1
        return kept

    def close(self, session_id: str) -> None:
        """Drops all cells of a session that is over. Nothing more is kept for it."""
        if (kept := self._open.pop(session_id, None)) is None:
            return
        for n in list(kept.cells):
            kept.drop(n)
        kept.hold(0)
        kept.is_closed = True
        holder = self._holders[kept.account]
        holder.sessions -= 1
        if not holder.sessions:
            del self._holders[kept.account]

    def held_by(self, account: str) -> int:
        holder = self._holders.get(account)
        return 0 if holder is None else holder.held

    def try_take(self, account: str, amount: int) -> bool:
        """Makes room for so many bytes more. Returns False if there is none."""
        bounds, holder = self._bounds, self._holders[account]
        while holder.held + amount > bounds.account_bytes:
            if not self._drop_oldest(holder):
                return False
        while self.held + amount > bounds.host_bytes and holder.held + amount > bounds.little_bytes:
            heaviest = max((one for one in self._holders.values() if one.ended), key=_held, default=None)
            if heaviest is None:
                return False
            self._drop_oldest(heaviest)
        self.count(account, amount)
        return True

    def count(self, account: str, amount: int) -> None:
        self._holders[account].held += amount
        self.held += amount

    def refusal(self, account: str) -> OverBudget | NoCapacity:
        """Returns the error for a cell that there is no room for."""
        bounds = self._bounds
        if self.held_by(account) * 2 > bounds.account_bytes:
            return OverBudget(
                why=f"cells of your sessions that run or wait take most of {bounds.account_bytes >> 20} MB",
                limit=bounds.account_bytes,
                retry_after_s=5,
            )
        return NoCapacity(
            resource="memory for cells",
            why=f"{bounds.host_bytes >> 20} MB are in use by the sessions of all together",
            hint="Try again in a while, or send less code at a time.",
        )

    def note_end(self, kept: KeptCells, n: int) -> None:
        self._holders[kept.account].ended[kept.session_id, n] = kept

    def note_drop(self, kept: KeptCells, cell: Cell) -> None:
        self._holders[kept.account].ended.pop((kept.session_id, cell.n), None)
        self.count(kept.account, -cell.size)

    def _drop_oldest(self, holder: _Holder) -> bool:
        if not holder.ended:
            return False
        (_, n), kept = next(iter(holder.ended.items()))
        kept.drop(n)
        return True


def _held(holder: _Holder) -> int:
    return holder.held


class KeptCells:
    """The cells of one session, by number."""

    def __init__(self, shelf: Shelf, session_id: str, account: str) -> None:
        self._shelf = shelf
        self.session_id = session_id
        self.account = account
        self.cells: dict[int, Cell] = {}
        self.is_closed = False
        # Bytes of a line of its interpreter that is not complete yet.
        self._line = 0

    def add(self, cell: Cell) -> None:
        """Adds a cell that somebody asked for. Raises OverBudget, NoCapacity."""
        if not self._try_take(cell.size):
            raise self._shelf.refusal(self.account)
        self._put(cell)

    def add_found(self, cell: Cell) -> None:
        """Adds a cell that runs already, without its code if there is no room for that."""
        if self.is_closed:
            return
        if not self._try_take(cell.size):
            cell.forget_code()
            self._shelf.count(self.account, cell.size)
        self._put(cell)

    def has_ended(self, cell: Cell) -> None:
        """Call it when a cell has ended: from now on it may be dropped for others."""
        if self.cells.get(cell.n) is not cell:
            return
        self._shelf.note_end(self, cell.n)
        ended = [one for one in self.cells.values() if one.over.is_set()]
        size = sum(one.size for one in ended)
        while len(ended) > 1 and (len(ended) > KEPT_CELLS or size > KEPT_BYTES):
            oldest = ended.pop(0)
            size -= oldest.size
            self.drop(oldest.n)

    def hold(self, size: int) -> bool:
        """Counts what is held of a line that is not complete. Returns False if there is no room for it; then
        nothing of it may be held.
        """
        size = size if size > SMALL else 0
        if size > self._line and not self._try_take(size - self._line):
            self.hold(0)
            return False
        if size < self._line:
            self._shelf.count(self.account, size - self._line)
        self._line = size
        return True

    def drop(self, n: int) -> None:
        cell = self.cells.pop(n)
        # Somebody may still print to it, or read it; it is not counted here any more.
        cell.room = _no_room
        self._shelf.note_drop(self, cell)

    def _put(self, cell: Cell) -> None:
        cell.room = self._try_take
        self.cells[cell.n] = cell

    def _try_take(self, amount: int) -> bool:
        return not self.is_closed and self._shelf.try_take(self.account, amount)


def _no_room(_: int) -> bool:
    return False
