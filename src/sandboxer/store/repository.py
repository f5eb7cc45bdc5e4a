"""Keeps records (decision 0029): a repository is the only writer of its rows.

Each step is one short transaction: the lifecycle's table decides, `version` fences, the charge follows and
the event is recorded. Who lost the fence looks again. A noun gives the codec of its rows (`Rows`), its
lifecycle, and says in `_record` what a change brings with it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Select

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound, SandboxerError
from sandboxer.store.engine import Store
from sandboxer.store.rows import Page, Recorded, Rows
from sandboxer.store.steps import Change, Lifecycle, Step, walk

R = TypeVar("R", bound=Recorded)
T = TypeVar("T", bound=Step[Any, Any])
X = TypeVar("X")
# Written in the transaction of a new record, with its id.
Also = Callable[[Connection, str], None]
# A step that finds the record changed under it looks again this often before it gives up.
_TRIES = 8
_ENDED_KEPT = 10_000


class Repository(Generic[R, T]):
    # What people call one of its records.
    noun: str

    def __init__(self, store: Store, clock: Clock, rows: Rows[R], lifecycle: Lifecycle[Any, Any]) -> None:
        self.store = store
        self.clock = clock
        self.rows = rows
        self.lifecycle = lifecycle
        self._watchers: list[tuple[Callable[[R, Sequence[T]], None], Collection[Any] | None]] = []
        self._joins: list[Callable[[Connection, R], None]] = []

    def on_change(
        self, watcher: Callable[[R, Sequence[T]], None], *, among: Collection[Any] | None = None
    ) -> None:
        """Calls back with the new record and its steps after every commit, or after those that leave it in a
        state of `among`. The callback must be quick and not raise.
        """
        self._watchers.append((watcher, among))

    def with_each_new(self, join: Callable[[Connection, R], None]) -> None:
        """Calls back in the transaction of every new record. What the callback raises refuses the record."""
        self._joins.append(join)

    async def find(self, id: str) -> R | None:
        return await self.store.read(lambda conn: self.rows.load(conn, id))

    async def page(
        self, query: Select[Any], *, cursor: str | None, limit: int, oldest_first: bool = False
    ) -> Page[R]:
        """Returns some of the records that `query` asks for, newest first unless it is said otherwise."""
        return await self.store.read(
            lambda conn: self.rows.page(conn, query, cursor=cursor, limit=limit, oldest_first=oldest_first)
        )

    async def create(
        self,
        wanted: R,
        *steps: T,
        check: Callable[[Connection], None] | None = None,
        also: Also | None = None,
    ) -> R:
        """Writes a new record, taken through `steps` at once. `check` raises what refuses it."""
        now = self.clock.now()

        def write(conn: Connection) -> R:
            if check is not None:
                check(conn)
            return self.add(conn, wanted, *steps, also=also, now=now)

        return self.announce(await self._write(wanted.id, write), steps)

    def add(self, conn: Connection, wanted: R, *steps: T, also: Also | None, now: datetime) -> R:
        """Does the same as `create` in the caller's transaction, who announces it only after the commit."""
        admitted = self._admit(conn, wanted, now)
        entries = walk(admitted, steps, self.lifecycle, now)
        added = entries[-1].after if entries else admitted
        self.rows.insert(conn, added)
        for join in self._joins:
            join(conn, added)
        if also is not None:
            also(conn, added.id)
        self._record(conn, Change(before=None, after=added, entries=entries, now=now))
        return added

    async def move(self, id: str, *steps: T) -> R:
        """Takes a record through `steps` from the state it is in now.

        Raises IllegalTransition, NotFound, Conflict, and what the checks of the steps raise.
        """
        for _ in range(_TRIES):
            written = await self._write(
                id, partial(self._apply, change=self._change(await self._current(id), steps))
            )
            if written is not None:
                return self.announce(written, steps)
            await self._look_again(id)
        raise Conflict(why=f"{self.noun} {id} is changing too fast", hint="Ask for it again in a moment.")

    def step(self, conn: Connection, before: R, *steps: T) -> R:
        """Does the same as `move`, once, in the caller's transaction. Raises Conflict if someone else
        wrote first.
        """
        if (written := self._apply(conn, self._change(before, steps))) is None:
            why = f"{self.noun} {before.id} was changed by someone else meanwhile"
            raise Conflict(why=why, hint="Look at how it is now, and ask for it again.")
        return written

    # What a noun says of itself.

    def _admit(self, conn: Connection, wanted: R, now: datetime) -> R:
        """Returns the new record as it is to be written. Raises what refuses it."""
        return wanted

    def _prepare(self, conn: Connection, change: Change[R, T]) -> R:
        """Returns the record as it is to be written, decided in the step's transaction. Raises what
        refuses it.
        """
        return change.after

    def _record(self, conn: Connection, change: Change[R, T]) -> None:
        """Lets the charge follow the record, and records its event."""
        raise NotImplementedError

    def _missing(self, id: str) -> SandboxerError:
        return NotFound(what=self.noun, id=id)

    def _change(self, before: R, steps: Sequence[T]) -> Change[R, T]:
        now = self.clock.now()
        entries = walk(before, steps, self.lifecycle, now)
        return Change(before=before, after=entries[-1].after, entries=entries, now=now)

    def _apply(self, conn: Connection, change: Change[R, T]) -> R | None:
        """Writes the record and returns it; None if someone else wrote first."""
        assert change.before is not None
        after = self._prepare(conn, change)
        if not self.rows.replace(conn, change.before, after):
            return None
        for entry in change.entries:
            if entry.step.check_stored is not None:
                entry.step.check_stored(conn, after)
            if entry.step.also is not None:
                entry.step.also(conn)
        self._record(conn, change if after is change.after else replace(change, after=after))
        return after

    def announce(self, record: R, steps: Sequence[T] = ()) -> R:
        """Tells the watchers what was committed. Only callers of `add` and `step` have to call it."""
        for watcher, among in self._watchers:
            if among is None or record.state in among:
                watcher(record, steps)
        return record

    async def _current(self, id: str) -> R:
        if (current := await self.find(id)) is None:
            raise self._missing(id)
        return current

    async def _write(self, id: str, fn: Callable[[Connection], X]) -> X:
        return await self.store.write(fn)

    async def _look_again(self, id: str) -> None:
        """Someone else wrote first."""


class RememberedRepository(Repository[R, T]):
    """Remembers every record that is not over.

    One server owns the database (it is fenced), so the memory is the truth for reads on the hot path; a write
    by anyone else shows as a lost fence.
    """

    def __init__(self, store: Store, clock: Clock, rows: Rows[R], lifecycle: Lifecycle[Any, Any]) -> None:
        super().__init__(store, clock, rows, lifecycle)
        self._memory: dict[str, R] = {}
        # The same by account: what one tenant does must not cost a walk over everybody's.
        self._of_accounts: dict[str, dict[str, R]] = {}
        # Ids that ended lately.
        self._ended: OrderedDict[str, None] = OrderedDict()

    async def load(self) -> Sequence[R]:
        """Fills the memory, once, at the start."""
        living = await self.store.read(self.rows.living)
        for record in living:
            self._remember(record)
        return living

    def living(self, account: str | None = None) -> Iterator[R]:
        """Returns the records that are not over, of one account or (None) of all."""
        known = self._memory if account is None else self._of_accounts.get(account, {})
        return iter(list(known.values()))

    def peek(self, id: str) -> R | None:
        """Returns the record if it is not over, without the database."""
        return self._memory.get(id)

    def known(self, id: str) -> R:
        """Returns the record if it is not over, without the database. Raises NotFound."""
        if (found := self._memory.get(id)) is None:
            raise self._missing(id)
        return found

    async def find(self, id: str) -> R | None:
        known = self._memory.get(id)
        return known if known is not None else await super().find(id)

    async def _write(self, id: str, fn: Callable[[Connection], X]) -> X:
        try:
            return await super()._write(id, fn)
        except asyncio.CancelledError:
            # The store finishes a transaction it began; the memory must not fall behind it.
            await self._look_again(id)
            raise

    async def _look_again(self, id: str) -> None:
        if (stored := await super().find(id)) is not None:
            self.announce(stored)

    def announce(self, record: R, steps: Sequence[T] = ()) -> R:
        # Writers come back in any order: an older version must not replace a newer one, nor undo an end.
        known = self._memory.get(record.id)
        if record.id in self._ended or (known is not None and known.version >= record.version):
            return record
        self._remember(record)
        return super().announce(record, steps)

    def _remember(self, record: R) -> None:
        if record.state in self.rows.over:
            self._forget(record)
            return
        known = self._memory.get(record.id)
        if known is not None and known.account != record.account:
            self._take_from_account(known)
        self._memory[record.id] = record
        self._of_accounts.setdefault(record.account, {})[record.id] = record

    def _take_from_account(self, known: R) -> None:
        of_account = self._of_accounts[known.account]
        del of_account[known.id]
        if not of_account:
            del self._of_accounts[known.account]

    def _forget(self, record: R) -> None:
        if (known := self._memory.pop(record.id, None)) is not None:
            self._take_from_account(known)
        self._ended[record.id] = None
        if len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)
