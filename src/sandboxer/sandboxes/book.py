"""The book of sandboxes: the only writer of their records, and a memory of all that are not destroyed.

Each step is one short transaction that changes the record and records the event; `lifecycle.next_state`
decides, `version` fences. One server owns one book (the state folder is locked), so the memory is the truth
for reads on the hot path; a write by anyone else shows as a lost fence.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from sandboxer.accounts.door import Act, demand_may
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict
from sandboxer.observe import events
from sandboxer.sandboxes.lifecycle import FINAL, LIVE, Signal, State, next_state
from sandboxer.sandboxes.records import (
    Page,
    Sandbox,
    count_by_state,
    insert_record,
    load_all_but,
    load_page,
    load_record,
    replace_record,
    stepped,
)
from sandboxer.sandboxes.terms import Terms
from sandboxer.store.engine import Store

T = TypeVar("T")
# A step that finds the record changed under it looks again this often before it gives up.
_TRIES = 8
_ENDED_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a life, and what else changes in the record with it."""

    signal: Signal
    actor: str
    reason: str
    changes: Mapping[str, object] = field(default_factory=dict)
    # Facts for the event alone.
    data: Mapping[str, object] = field(default_factory=dict)
    # When it happened, if that was noticed later: a charge ends there.
    at: datetime | None = None
    # Raises what refuses the step for the record as it is; asked again whenever someone wrote first.
    check: Callable[[Sandbox], None] | None = None
    # It runs again from here on: whether it may, and on which terms, is decided in the step's transaction.
    starts: bool = False


class Charges(Protocol):
    """Who pays, decided and written in the transaction of the step itself."""

    def is_free(self, account: str, profile: str) -> bool: ...

    def check_start(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Terms:
        """The terms on which it may run, from new or again. Raises what refuses it; nothing is held."""

    def admit(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Sandbox:
        """The record with its terms. Raises what refuses the create."""

    def promised(self, conn: Connection, sandbox: Sandbox, quote_id: str, *, now: datetime) -> Terms:
        """The terms on which it goes on at a quote's rates. Raises if the quote is not for it."""

    def resized(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Terms:
        """The terms on which it goes on with these resources. Raises what refuses them; nothing is held."""

    def kept_for(
        self, conn: Connection, sandbox: Sandbox, *, retention: timedelta, now: datetime
    ) -> timedelta:
        """How long its disk is kept when it does not run any more: at most the retention time."""

    def apply(
        self, conn: Connection, before: Sandbox | None, after: Sandbox, *, now: datetime, at: datetime | None
    ) -> Mapping[str, object]:
        """Let the charge follow the record; returns facts for the event."""


Watcher = Callable[[Sandbox, Sequence[Step]], None]
Also = Callable[[Connection, str], None]
Join = Callable[[Connection, Sandbox], None]


class Book:
    def __init__(self, store: Store, clock: Clock, charges: Charges | None = None) -> None:
        self._store = store
        self._clock = clock
        self._charges = charges
        self._memory: dict[str, Sandbox] = {}
        # Ids that ended lately.
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._watchers: list[Watcher] = []
        self._joins: list[Join] = []

    def on_change(self, watcher: Watcher) -> None:
        """Called with the new record and the steps to it after every commit. Must be quick and not raise."""
        self._watchers.append(watcher)

    def with_each_new(self, join: Join) -> None:
        """Written with every new record, in its transaction. What it raises refuses the sandbox."""
        self._joins.append(join)

    async def load_living(self) -> Sequence[Sandbox]:
        """Fill the memory; once, at start."""
        living = await self._store.read(lambda conn: load_all_but(conn, FINAL))
        self._memory = {sandbox.id: sandbox for sandbox in living}
        return living

    def living(self) -> Iterator[Sandbox]:
        return iter(list(self._memory.values()))

    def peek(self, sandbox_id: str) -> Sandbox | None:
        """The record if it is not destroyed; no database."""
        return self._memory.get(sandbox_id)

    async def find(self, sandbox_id: str) -> Sandbox | None:
        known = self._memory.get(sandbox_id)
        if known is not None:
            return known
        return await self._store.read(lambda conn: load_record(conn, sandbox_id))

    async def page(
        self,
        *,
        account: str | None,
        labels: Mapping[str, str],
        states: Sequence[State],
        cursor: str | None,
        limit: int,
    ) -> Page:
        return await self._store.read(
            lambda conn: load_page(
                conn, account=account, labels=labels, states=states, cursor=cursor, limit=limit
            )
        )

    async def counts(self, account: str | None = None) -> dict[str, int]:
        return await self._store.read(lambda conn: count_by_state(conn, account))

    async def check_start(self, sandbox: Sandbox) -> Terms:
        """May it run, from new or again? Asked before anything is made or claimed."""
        charges, now = self._charges, self._clock.now()
        is_free = charges is None or charges.is_free(sandbox.account, sandbox.profile)
        transaction = self._store.read if is_free else self._store.write
        return await transaction(lambda conn: self._terms_to_run(conn, sandbox, now))

    async def promised(self, sandbox: Sandbox, quote_id: str) -> Terms:
        """The terms of one that goes on at a quote's rates; where nobody pays, as they are."""
        charges, now = self._charges, self._clock.now()
        if charges is None:
            return sandbox.terms
        return await self._store.read(lambda conn: charges.promised(conn, sandbox, quote_id, now=now))

    async def kept_for(self, sandbox: Sandbox, retention: timedelta) -> timedelta:
        """How long its disk is kept from the moment it does not run any more."""
        charges, now = self._charges, self._clock.now()
        if charges is None or sandbox.terms.is_free:
            return retention
        return await self._store.read(
            lambda conn: charges.kept_for(conn, sandbox, retention=retention, now=now)
        )

    async def resized(self, sandbox: Sandbox) -> Terms:
        """The terms of one that goes on with the resources it is given here."""
        charges, now = self._charges, self._clock.now()
        if charges is None or sandbox.terms.is_free:
            return sandbox.terms
        return await self._store.write(lambda conn: charges.resized(conn, sandbox, now=now))

    async def open(self, requested: Sandbox, steps: Sequence[Step], also: Also | None = None) -> Sandbox:
        """Write a new record, taken through `steps` at once. `requested` is as it was asked for.

        `also` is written in the same transaction, with the record's id.
        """
        now = self._clock.now()

        def write(conn: Connection) -> Sandbox:
            # Whoever asks, and whether or not anybody pays.
            demand_may(conn, requested.account, Act.RUN, now=now)
            admitted = requested if self._charges is None else self._charges.admit(conn, requested, now=now)
            final, chain = _walk(admitted, steps, now)
            insert_record(conn, final)
            for join in self._joins:
                join(conn, final)
            if also is not None:
                also(conn, final.id)
            facts = self._charge(conn, None, final, now)
            _record_request(conn, requested)
            for entry in chain:
                _record_step(conn, entry, now, facts if entry is chain[-1] else {})
            return final

        return self._remember(await self._write(requested.id, write), steps)

    async def move(self, sandbox_id: str, *steps: Step) -> Sandbox:
        """Take it through `steps` from the state it is in now. Raises IllegalTransition, Conflict."""
        for _ in range(_TRIES):
            before = await self._current(sandbox_id)
            now = self._clock.now()
            after, chain = _walk(before, steps, now)
            written = await self._write(
                sandbox_id, partial(self._apply, before=before, after=after, chain=chain, now=now)
            )
            if written is not None:
                return self._remember(written, steps)
            await self._look_again(sandbox_id)
        raise Conflict(why=f"sandbox {sandbox_id} is changing too fast")

    async def amend(
        self,
        sandbox_id: str,
        *,
        kind: str,
        actor: str,
        reason: str,
        decide: Callable[[Sandbox], Mapping[str, object]],
        at: datetime | None = None,
        data: Mapping[str, object] | None = None,
        also: Also | None = None,
    ) -> Sandbox:
        """Change the record within its state. `decide` may be called again when someone wrote first.

        `at` is when it became true, as in `Step`; `data` are facts for the event alone; `also` is written in
        the same transaction, with its id.
        """
        for _ in range(_TRIES):
            before = await self._current(sandbox_id)
            now = self._clock.now()
            changes = decide(before)
            after = stepped(before, before.state, reason=before.reason, now=now, changes=changes)

            def write(conn: Connection, b: Sandbox = before, a: Sandbox = after, n: datetime = now) -> bool:
                if not replace_record(conn, b, a):
                    return False
                if also is not None:
                    also(conn, b.id)
                facts = {**(data or {}), **self._charge(conn, b, a, n, at=at)}
                events.record(conn, subject=b.id, kind=kind, actor=actor, reason=reason, at=n, data=facts)
                return True

            if await self._write(sandbox_id, write):
                return self._remember(after)
            await self._look_again(sandbox_id)
        raise Conflict(why=f"sandbox {sandbox_id} is changing too fast")

    def _apply(
        self, conn: Connection, *, before: Sandbox, after: Sandbox, chain: Sequence[_Entry], now: datetime
    ) -> Sandbox | None:
        """The record as it was written; None: someone else wrote first."""
        if any(entry.step.starts for entry in chain):
            terms = self._terms_to_run(conn, before, now)
            # What is frozen has had its slot all along, and keeps its terms with it.
            after = after if before.state in LIVE else replace(after, terms=terms)
        if not replace_record(conn, before, after):
            return None
        facts = self._charge(conn, before, after, now, at=chain[-1].step.at)
        for entry in chain:
            _record_step(conn, entry, now, facts if entry is chain[-1] else {})
        return after

    def _terms_to_run(self, conn: Connection, sandbox: Sandbox, now: datetime) -> Terms:
        """Raises what refuses it."""
        demand_may(conn, sandbox.account, Act.RUN, now=now)
        if self._charges is None or self._charges.is_free(sandbox.account, sandbox.profile):
            return sandbox.terms
        return self._charges.check_start(conn, sandbox, now=now)

    def _charge(
        self,
        conn: Connection,
        before: Sandbox | None,
        after: Sandbox,
        now: datetime,
        at: datetime | None = None,
    ) -> Mapping[str, object]:
        if self._charges is None:
            return {}
        return self._charges.apply(conn, before, after, now=now, at=at)

    async def _write(self, sandbox_id: str, fn: Callable[[Connection], T]) -> T:
        try:
            return await self._store.write(fn)
        except asyncio.CancelledError:
            # The store finishes a transaction it began; the memory must not fall behind it.
            await self._look_again(sandbox_id)
            raise

    async def _current(self, sandbox_id: str) -> Sandbox:
        current = await self.find(sandbox_id)
        if current is None:
            raise Conflict(why=f"sandbox {sandbox_id} has no record")
        return current

    async def _look_again(self, sandbox_id: str) -> None:
        stored = await self._store.read(lambda conn: load_record(conn, sandbox_id))
        if stored is not None:
            self._remember(stored)

    def _remember(self, sandbox: Sandbox, steps: Sequence[Step] = ()) -> Sandbox:
        # Writers come back in any order: an older version must not replace a newer one, nor undo an end.
        known = self._memory.get(sandbox.id)
        if sandbox.id in self._ended or (known is not None and known.version >= sandbox.version):
            return sandbox
        if sandbox.state in FINAL:
            self._memory.pop(sandbox.id, None)
            self._ended[sandbox.id] = None
            if len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)
        else:
            self._memory[sandbox.id] = sandbox
        for watcher in self._watchers:
            watcher(sandbox, steps)
        return sandbox


@dataclass(frozen=True, slots=True)
class _Entry:
    step: Step
    before: Sandbox
    after: Sandbox


def _walk(sandbox: Sandbox, steps: Sequence[Step], now: datetime) -> tuple[Sandbox, list[_Entry]]:
    chain = []
    for step in steps:
        if step.check is not None:
            step.check(sandbox)
        state = next_state(sandbox.state, step.signal)
        after = stepped(sandbox, state, reason=step.reason, now=now, changes=step.changes)
        chain.append(_Entry(step, sandbox, after))
        sandbox = after
    return sandbox, chain


def _record_request(conn: Connection, sandbox: Sandbox) -> None:
    data = {"to": sandbox.state.value, "signal": Signal.REQUEST.value, "profile": sandbox.profile}
    if sandbox.consumer:
        data["consumer"] = dict(sandbox.consumer)  # type: ignore[assignment]
    events.record(
        conn,
        subject=sandbox.id,
        kind=f"sandbox.{sandbox.state.value}",
        actor=sandbox.created_by,
        reason=sandbox.reason,
        at=sandbox.created_at,
        data=data,
    )


def _record_step(conn: Connection, entry: _Entry, now: datetime, facts: Mapping[str, object]) -> None:
    step = entry.step
    steps = {"from": entry.before.state.value, "to": entry.after.state.value, "signal": step.signal.value}
    events.record(
        conn,
        subject=entry.after.id,
        kind=f"sandbox.{entry.after.state.value}",
        actor=step.actor,
        reason=step.reason,
        at=now,
        data={**steps, **step.data, **facts},
    )
