"""The repository of sandboxes is the only writer of their records.

Who pays, and whether a sandbox may run, is decided in the transaction of the step itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import quote

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sandboxer.accounts.authority import Act, demand_may
from sandboxer.hosts.routes.records import Route
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.observe import events
from sandboxer.sandboxes import records
from sandboxer.sandboxes.charging import ACTOR, OCCUPYING, check_slots
from sandboxer.sandboxes.lifecycle import LIFECYCLE, LIVE, OVER, Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.terms import Terms
from sandboxer.store import steps
from sandboxer.store.engine import Store
from sandboxer.store.repository import Also, RememberedRepository


@value_class
class Step(steps.Step[Sandbox, Signal]):
    """One step of a sandbox's lifecycle, and what else changes in the record with it."""

    # True if it runs again from here on; whether it may is decided in the step's transaction.
    starts: bool = False


Change = steps.Change[Sandbox, Step]


class Charges(Protocol):
    """Decides who pays, and writes the charge in the transaction of the step itself."""

    def is_free(self, account: str, profile: str) -> bool: ...

    def check_start(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Terms:
        """Return the terms on which it may run, new or again. Nothing is held. Raises what refuses it."""

    def admit(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Sandbox:
        """Return the record of a new sandbox with its terms. Raises what refuses the create."""

    def promised(self, conn: Connection, sandbox: Sandbox, quote_id: str, *, now: datetime) -> Terms:
        """Return the terms on which it goes on at a quote's rates. Raises if the quote is not for it."""

    def rerouted(self, sandbox: Sandbox) -> Terms:
        """Return the terms of one that another backend makes than the one that was asked first."""

    def remembering(self, sandbox: Sandbox) -> Terms:
        """Return its terms with the price of what is kept of its memory."""

    def resized(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Terms:
        """Return the terms on which it goes on with these resources.

        Nothing is held. Raises what refuses them.
        """

    def kept_for(
        self, conn: Connection, sandbox: Sandbox, *, retention: timedelta, now: datetime
    ) -> timedelta:
        """Return how long its disk is kept when it stops: at most the retention time."""

    def to_take_up(self, conn: Connection, sandboxes: Sequence[Sandbox]) -> list[Sandbox]:
        """Return those that have a price and are not metered, since nothing was charged when they changed."""

    def taken_up(self, sandbox: Sandbox) -> Terms:
        """Return the terms on which such a one goes on."""

    def take_up(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> None:
        """Let its meter, if it has one, go on at its rate."""

    def apply(
        self, conn: Connection, before: Sandbox | None, after: Sandbox, *, now: datetime, at: datetime | None
    ) -> Mapping[str, object]:
        """Change the charge with the record. Returns facts for the event."""


class SandboxRepository(RememberedRepository[Sandbox, Step]):
    noun = "sandbox"

    def __init__(
        self, store: Store, clock: Clock, charges: Charges | None = None, *, is_by_invitation: bool = False
    ) -> None:
        super().__init__(store, clock, records.rows, LIFECYCLE)
        self._charges = charges
        self._is_by_invitation = is_by_invitation
        self._afters: list[Callable[[Sandbox], Awaitable[None]]] = []

    def after_change(self, after: Callable[[Sandbox], Awaitable[None]]) -> None:
        """Waits for `after` with the new record after every commit, before whoever changed it goes on. It
        must be quick and not raise.
        """
        self._afters.append(after)

    async def _after(self, record: Sandbox) -> Sandbox:
        for after in self._afters:
            await after(record)
        return record

    @property
    def is_charged(self) -> bool:
        return self._charges is not None

    def is_free(self, account: str, profile: str) -> bool:
        """Say whether such a sandbox costs nothing."""
        return self._charges is None or self._charges.is_free(account, profile)

    async def counts(self, account: str | None = None) -> dict[str, int]:
        """Return how many sandboxes there are by state, zeros included, so that gauges are reset."""
        return dict.fromkeys(State, 0) | await self.store.read(lambda conn: self.rows.counts(conn, account))

    async def check_start(self, sandbox: Sandbox) -> Terms:
        """Return the terms on which it may run, before anything is made. Raises what refuses it."""
        charges, now = self._charges, self.clock.now()
        is_free = charges is None or charges.is_free(sandbox.account, sandbox.profile)
        transaction = self.store.read if is_free else self.store.write
        return await transaction(lambda conn: self._terms_to_run(conn, sandbox, now))

    async def promised(self, sandbox: Sandbox, quote_id: str) -> Terms:
        """Return the terms of a sandbox that goes on at a quote's rates; unchanged where nobody pays."""
        charges, now = self._charges, self.clock.now()
        if charges is None:
            return sandbox.terms
        return await self.store.read(lambda conn: charges.promised(conn, sandbox, quote_id, now=now))

    async def kept_for(self, sandbox: Sandbox, retention: timedelta) -> timedelta:
        """Return how long its disk is kept from the moment it stops."""
        charges, now = self._charges, self.clock.now()
        if charges is None or sandbox.terms.is_free:
            return retention
        return await self.store.read(
            lambda conn: charges.kept_for(conn, sandbox, retention=retention, now=now)
        )

    async def to_take_up(self) -> list[Sandbox]:
        """Return what has a price and is not metered, because nothing was charged until now."""
        charges, living = self._charges, list(self.living())
        if charges is None or not living:
            return []
        return await self.store.read(lambda conn: charges.to_take_up(conn, living))

    async def take_up(self, sandbox: Sandbox) -> None:
        """Let it pay from now on."""
        charges, now = self._charges, self.clock.now()
        assert charges is not None
        await self.amend(
            sandbox.id,
            kind="sandbox.terms_changed",
            actor=ACTOR,
            reason="charging_began",
            decide=lambda one: {"terms": charges.taken_up(one)},
            also=lambda conn, _: charges.take_up(conn, sandbox, now=now),
        )

    async def terms_of_more(self, sandbox: Sandbox) -> Terms:
        """Return the terms on which it gets more time: one that began while nothing was charged pays from
        then on. Raises what refuses it.
        """
        charges, terms = self._charges, sandbox.terms
        if charges is None or not terms.is_free or charges.is_free(sandbox.account, sandbox.profile):
            return terms
        return await self.check_start(sandbox)

    async def resized(self, sandbox: Sandbox) -> Terms:
        """Return the terms of a sandbox that goes on with these resources."""
        charges, now = self._charges, self.clock.now()
        if charges is None:
            return sandbox.terms
        return await self.store.write(lambda conn: charges.resized(conn, sandbox, now=now))

    async def reroute(self, sandbox: Sandbox, route: Route, backend: str, *, actor: str, why: str) -> Sandbox:
        """Let another backend make it: within the same create, under the same id, with one hold.

        Raises InsufficientCredit where it costs more there than its account has.
        """

        def decide(one: Sandbox) -> Mapping[str, object]:
            moved = replace(one, backend=backend, route=route)
            terms = one.terms if self._charges is None else self._charges.rerouted(moved)
            return {"backend": backend, "route": route, "terms": terms}

        return await self.amend(
            sandbox.id,
            kind="sandbox.rerouted",
            actor=actor,
            reason="backend_failed",
            decide=decide,
            data={"from": sandbox.backend, "backend": backend, "why": why[:500]},
        )

    def check_name(self, account: str, name: str | None, *, of: str = "") -> None:
        """Raise Conflict if another sandbox of the account than `of` has the name. Before anything is made;
        two that ask at the same moment are told apart by the database (`create`, `move`).
        """
        if name is None:
            return
        for one in self._memory.values():
            if one.name == name and one.account == account and one.id != of and one.state not in OVER:
                raise _name_taken(name, one.id)

    async def create(
        self,
        wanted: Sandbox,
        *steps: Step,
        check: Callable[[Connection], None] | None = None,
        also: Also | None = None,
    ) -> Sandbox:
        try:
            made = await super().create(wanted, *steps, check=check, also=also)
            # Of one without processes there is nobody to tell anything yet.
            return made if made.handle is None else await self._after(made)
        except IntegrityError as error:
            raise _meant_by(error, wanted.name) from None

    async def move(self, id: str, *steps: Step) -> Sandbox:
        try:
            return await self._after(await super().move(id, *steps))
        except IntegrityError as error:
            wanted = self._change(await self._current(id), steps).after
            raise _meant_by(error, wanted.name) from None

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
        step = Step(
            signal=None,
            kind=kind,
            actor=actor,
            reason=reason,
            decide=decide,
            at=at,
            data=data or {},
            also=None if also is None else lambda conn: also(conn, sandbox_id),
        )
        return await self.move(sandbox_id, step)

    def _admit(self, conn: Connection, wanted: Sandbox, now: datetime) -> Sandbox:
        # Checked for every caller, whether or not anybody pays.
        demand_may(conn, wanted.account, Act.RUN, now=now, is_by_invitation=self._is_by_invitation)
        return wanted if self._charges is None else self._charges.admit(conn, wanted, now=now)

    def _prepare(self, conn: Connection, change: Change) -> Sandbox:
        before, after = change.before, change.after
        if before is None:
            return after
        if self._charges is not None and after.terms.memory_mb != before.terms.memory_mb:
            after = replace(after, terms=self._charges.remembering(after))
        if not any(entry.step.starts for entry in change.entries):
            return after
        terms = self._terms_to_run(conn, before, change.now)
        # What lives has kept its slot, and so it keeps its terms, unless it began when there were none.
        keeps = before.state in LIVE and not before.terms.is_free
        # What is kept of its memory is as the step says.
        kept = after.terms
        terms = replace(terms, memory_mb=kept.memory_mb, memory_msats=kept.memory_msats)
        return after if keeps else replace(after, terms=terms)

    def _record(self, conn: Connection, change: Change) -> None:
        before, after, now = change.before, change.after, change.now
        facts: Mapping[str, object] = {}
        if self._charges is not None:
            at = None if before is None else change.entries[-1].step.at
            facts = self._charges.apply(conn, before, after, now=now, at=at)
        if before is not None and after.labels is not before.labels:
            records.relabel(conn, after)
        rows = [
            _step_row(entry, now, facts if entry is change.entries[-1] else {}) for entry in change.entries
        ]
        if before is None:
            rows = [_request_row(change.entries[0].before if change.entries else after), *rows]
        events.record_in_order(conn, rows)

    def _missing(self, id: str) -> SandboxerError:
        return Conflict(why=f"sandbox {id} has no record")

    def _terms_to_run(self, conn: Connection, sandbox: Sandbox, now: datetime) -> Terms:
        """Return the terms on which it may run. Raises what refuses it."""
        who = demand_may(conn, sandbox.account, Act.RUN, now=now, is_by_invitation=self._is_by_invitation)
        if self._charges is not None and not self._charges.is_free(sandbox.account, sandbox.profile):
            return self._charges.check_start(conn, sandbox, now=now)
        if who is not None and who.slots is not None:
            # Where nothing is paid: one that failed has no slot any more, and may come back.
            mine = records.load_account(conn, sandbox.account, OCCUPYING)
            check_slots(conn, who, sum(one.id != sandbox.id for one in mine))
        return sandbox.terms


def _meant_by(error: IntegrityError, name: str | None) -> Exception:
    """Return the refusal that the database's word stands for: both name the columns of the index."""
    return error if name is None or "name" not in str(error.orig) else _name_taken(name)


def _name_taken(name: str, holder: str = "") -> Conflict:
    return Conflict(
        why=f"you have a sandbox {name} already" + (f" ({holder})" if holder else ""),
        reason="name_taken",
        hint=f"Give another name, use that sandbox (GET /v1/sandboxes/{quote(name)}), or remove it first"
        f" (DELETE /v1/sandboxes/{quote(name)}).",
    )


def _request_row(sandbox: Sandbox) -> dict[str, object]:
    data = {"to": sandbox.state.value, "signal": Signal.REQUEST.value, "profile": sandbox.profile}
    if sandbox.consumer:
        data["consumer"] = dict(sandbox.consumer)  # type: ignore[assignment]
    return {
        "subject": sandbox.id,
        "kind": f"sandbox.{sandbox.state.value}",
        "actor": sandbox.created_by,
        "reason": sandbox.reason,
        "at": sandbox.created_at,
        "data": data,
    }


def _step_row(
    entry: steps.Entry[Sandbox, Step], now: datetime, facts: Mapping[str, object]
) -> dict[str, object]:
    step, states, after = entry.step, {}, entry.after
    if step.signal is not None:
        states = {
            "from": entry.before.state.value,
            "to": after.state.value,
            "signal": step.signal.value,
        }
    return {
        "subject": after.id,
        "kind": step.kind or f"sandbox.{after.state.value}",
        "actor": step.actor,
        "reason": step.reason,
        # Its time was over then, however late anyone noticed.
        "at": step.at or now if after.state is State.EXPIRED else now,
        "data": {**states, **step.data, **facts},
    }
