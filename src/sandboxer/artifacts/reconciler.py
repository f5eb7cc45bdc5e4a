"""The reconciler of kept things acts without a caller: when their time is over, when their account runs dry,
is paid again, reaches a spending cap or ends. At the start it compares records with reality.

It wakes at the next moment that a record names, or when something happened to an account that keeps
something.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy import Connection, select

from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.records import delegated_keys
from sandboxer.artifacts.charges import Capped, read_capped
from sandboxer.artifacts.records import BEGUN, PAID, USABLE, KeptRecord, Signal, State
from sandboxer.artifacts.use_cases import KeptUseCases
from sandboxer.backends.contract import Backend
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.values import value_class
from sandboxer.money.buckets import load_bucket
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.terms import Reached
from sandboxer.store.reconciler import FAR, Reconciler
from sandboxer.store.steps import Step

log = logging.getLogger(__name__)
# The reason in a record that was kept once more because it is locked, although nobody paid.
SPARED = "unpaid_and_locked"
_ENDING = (KeyState.ENDING.value, KeyState.ENDED.value)
K = TypeVar("K", bound=KeptRecord)
B = TypeVar("B")


@value_class
class Funds:
    """The funds of an account that keeps something."""

    standing: Standing
    is_ending: bool


@value_class
class Glance(Generic[K]):
    """Everything that has not ended, and the money behind it, at one moment."""

    living: Sequence[K]
    funds_of: dict[str, Funds]
    capped: Capped
    now: datetime


class KeptReconciler(Reconciler, Generic[K, B]):
    """Reconciles one noun; `B` is what a backend must implement to keep it."""

    def __init__(self, use_cases: KeptUseCases[K]) -> None:
        repository = use_cases.repository
        super().__init__(f"the keeper of {repository.noun}s", repository.store, repository.clock)
        self.repository = repository
        self.dependencies = use_cases.sandboxes
        self.retention = use_cases.policy.retention
        self._use_cases = use_cases
        self.actor = f"system:{repository.noun}s"
        self._accounts: frozenset[str] = frozenset()
        # When caps were last checked; None before the first check.
        self._looked_at: datetime | None = None
        repository.on_change(lambda record, steps: self.wake())

    # What a noun says of itself.

    def host_of(self, backend: Backend) -> B | None:
        """Returns the backend, if it can keep one of these."""
        raise NotImplementedError

    async def there(self, host: B) -> Iterable[str]:
        """Returns the ids that the host has."""
        raise NotImplementedError

    async def drop(self, host: B, id: str) -> None:
        """Removes it from the host. One that is gone already counts as success."""
        raise NotImplementedError

    def demanded(self, record: K, funds: Funds, now: datetime, reached: Reached | None) -> Signal | None:
        """Returns the signal that time and money demand, if any."""
        return demanded(record, funds, now=now, reached=reached)

    def moment_of(self, record: K) -> datetime:
        """Returns when time alone will demand something."""
        is_locked = record.state in PAID and record.locked_at is not None
        is_timed = record.state in USABLE and not is_locked
        return record.expires_at or FAR if is_timed else FAR

    async def is_missing(self, host: B, id: str) -> bool:
        """Tells whether the content is missing although the host has something of this id. Raises if that
        cannot be told.
        """
        return False

    async def mend(self, host: B, record: K) -> None:
        """Brings something that exists to what its record says, after a start."""

    async def tend(self, record: K) -> None:
        """Does what else there is to do when nothing is demanded."""

    async def tend_all(self, seen: Glance[K]) -> None:
        """Runs after each of them was attended to."""

    def unpaid(self, record: K, until: datetime) -> dict[str, object]:
        """Returns how the record changes when its account runs dry."""
        return {"expires_at": until}

    def paid(self, record: K) -> dict[str, object]:
        return {"expires_at": None}

    # At the start.

    async def reconcile(self) -> None:
        """Compares records with reality once. A problem with one record raises nothing."""
        living = await self.repository.living()
        for name, backend in self.dependencies.backends.items():
            if (host := self.host_of(backend)) is None:
                continue
            there = set(await self.there(host))
            for record in (one for one in living if one.backend == name):
                try:
                    await self._settle(record, host, is_there=record.id in there)
                except Exception:
                    # One record must not keep the server from starting for all others.
                    log.exception("%s %s could not be reconciled", self.repository.noun, record.id)

    async def catch_up(self) -> None:
        """Stops charges at caps that were reached while the server was down, before anyone can ask for
        anything.
        """
        if not self.repository.is_charged:
            return
        usable = [one for one in await self.repository.living() if one.state in USABLE]
        now = self.clock.now()
        capped = await self.store.read(lambda conn: read_capped(conn, usable, now=now))
        for one in usable:
            if one.id in capped.reached and one.state is not State.UNPAID:
                await self._carry_out(one, Signal.DRY, now, capped.reached[one.id])

    async def _settle(self, record: K, host: B, *, is_there: bool) -> None:
        """Finishes what was begun and records what is missing."""
        if record.state in BEGUN:
            # Its caller got no answer. With an older copy of the database it may be complete by now.
            if not self.dependencies.is_adopted:
                await self.drop(host, record.id)
            await self.move(record, Signal.FAIL, "server_restarted")
        elif record.state is State.DROPPING:
            await self.remove(record, Signal.DROP, record.reason)
        elif record.state in USABLE:
            if not is_there or await self.is_missing(host, record.id):
                # Nobody knows when it went missing, so it is charged until it was last seen.
                await self.move(record, Signal.MISSED, "missing_on_host", at=self.dependencies.last_witnessed)
            else:
                await self.mend(host, record)
                if rate := await self.repository.rate_to_take_up(record):
                    # It was kept while nothing was charged, and may never change again.
                    await self.move(
                        record, None, "charging_began", kind="priced", changes={"rate_msats": rate}
                    )

    # The loop.

    async def _round(self) -> datetime:
        seen = await self._look()
        for record in seen.living:
            funds, reached = seen.funds_of[record.account], seen.capped.reached.get(record.id)
            await self._attend(record.id, partial(self._act, record, funds, reached))
        await self.tend_all(seen)
        moments = [self._look_at(one.id, self.moment_of(one)) for one in seen.living]
        return min([*moments, seen.capped.look_at or FAR])

    async def _look(self) -> Glance[K]:
        living = await self.repository.living()
        self._accounts = frozenset(one.account for one in living)
        now, since = self.clock.now(), self._looked_at
        usable = [one for one in living if one.state in USABLE]

        def read(conn: Connection) -> tuple[dict[str, Funds], Capped]:
            if not self.repository.is_charged:
                # An empty bucket harms nobody then, and what it harmed before is well again.
                return read_funds(conn, self._accounts, Standing.ALIVE), Capped()
            return read_funds(conn, self._accounts), read_capped(conn, usable, now=now, since=since)

        funds_of, capped = await self.store.read(read)
        self._looked_at = capped.seen_until
        return Glance(living=living, funds_of=funds_of, capped=capped, now=now)

    def _hear(self, topics: frozenset[str]) -> None:
        if topics & self._accounts:
            self.wake()

    async def _act(self, record: K, funds: Funds, reached: Reached | None) -> None:
        now = self.clock.now()
        if (signal := self.demanded(record, funds, now, reached)) is not None:
            await self._carry_out(record, signal, now, reached)
        elif record.state is State.DROPPING:
            # The removal was begun and not finished, because the backend failed.
            await self.remove(record, Signal.DROP, record.reason)
        else:
            await self.tend(record)

    async def _carry_out(self, record: K, signal: Signal, now: datetime, reached: Reached | None) -> None:
        until = now + self.retention
        data: dict[str, object] = {"dropped_at": until.isoformat()}
        if signal is Signal.DRY:
            changes, reason, at = self.unpaid(record, until), "out_of_sats", None
            if reached is not None:
                data |= {"cap": reached.cap, "limit_sats": reached.limit_sats}
                reason, at = "spending_cap", reached.at
            await self.move(record, signal, reason, changes=changes, data=data, at=at)
        elif signal is Signal.PAID:
            await self.move(record, signal, "paid", changes=self.paid(record))
        elif signal is Signal.RETENTION_OVER and is_spared(record):
            # Nobody paid and it is locked: an event says so, and it is kept once more for the same time.
            changes = {"expires_at": until, "reason": SPARED}
            await self.move(record, None, SPARED, kind="overdue", changes=changes, data=data)
        else:
            await self.remove(record, signal, signal.value)

    async def remove(self, record: K, signal: Signal, reason: str) -> None:
        await self._use_cases.remove(record, signal, actor=self.actor, reason=reason)

    async def move(
        self,
        record: K,
        signal: Signal | None,
        reason: str,
        *,
        kind: str = "",
        changes: Mapping[str, object] | None = None,
        data: Mapping[str, object] | None = None,
        at: datetime | None = None,
    ) -> None:
        """Takes a step on behalf of this loop; `kind` is the event's kind if no signal implies it."""
        step: Step[K, Signal] = Step(
            signal=signal,
            actor=self.actor,
            reason=reason,
            kind=kind and f"{self.repository.noun}.{kind}",
            changes=changes or {},
            data=data or {},
            at=at,
        )
        await self.repository.move(record.id, step)


def demanded(
    record: KeptRecord, funds: Funds, *, now: datetime, reached: Reached | None = None
) -> Signal | None:
    """Returns the step that time and money demand, or the cap that was reached. Pure.

    A lock protects against time, and against lack of money only once.
    """
    is_due = record.expires_at is not None and record.expires_at <= now
    if record.state not in USABLE:
        return None
    if funds.is_ending:
        return Signal.DROP
    if (by_money := demanded_by_money(record, funds.standing, reached)) is not None:
        return by_money
    if record.state is State.UNPAID:
        return Signal.RETENTION_OVER if is_due else None
    return Signal.EXPIRE if is_due and record.locked_at is None else None


def demanded_by_money(
    record: KeptRecord, standing: Standing, reached: Reached | None = None
) -> Signal | None:
    """Returns the signal that an empty or refilled bucket, or a reached cap, demands. Pure."""
    if record.state in PAID and record.rate_msats and (standing is Standing.REAPED or reached is not None):
        return Signal.DRY
    if record.state is State.UNPAID and standing is Standing.ALIVE and reached is None:
        return Signal.PAID
    return None


def is_spared(record: KeptRecord) -> bool:
    """Tells whether it is kept once more because it is locked, although nobody paid in time."""
    return record.locked_at is not None and record.reason != SPARED


def read_funds(
    conn: Connection, accounts: Iterable[str], standing: Standing | None = None
) -> dict[str, Funds]:
    """Reads how accounts stand; `standing` is how all of them do, if that is known."""
    ending = select(delegated_keys.c.account).where(
        delegated_keys.c.account.in_(list(accounts)), delegated_keys.c.state.in_(_ENDING)
    )
    over = {row.account for row in conn.execute(ending)}
    return {one: Funds(standing=standing or _standing(conn, one), is_ending=one in over) for one in accounts}


def _standing(conn: Connection, account: str) -> Standing:
    try:
        return load_bucket(conn, account).health.standing
    except NotFound:
        return Standing.ALIVE
