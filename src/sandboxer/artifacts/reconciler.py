"""The reconciler of kept things acts without a caller: when their time is over, when their account runs dry,
is paid again, reaches a spending cap or ends. At the start it compares records with reality.

It wakes at the next moment that a record names, or when something happened to an account that keeps
something.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, select

from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.tables import delegated_keys
from sandboxer.artifacts.charges import Capped, read_capped
from sandboxer.artifacts.repository import Kept, KeptRepository
from sandboxer.backends.contract import Backend
from sandboxer.kernel.errors import NotFound
from sandboxer.money.buckets import load_bucket
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.charges.caps import Reached
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.store.reconciler import FAR, Reconciler
from sandboxer.store.steps import Step

log = logging.getLogger(__name__)
# The reason in a record that was kept once more because it is locked, although nobody paid.
SPARED = "unpaid_and_locked"
_ENDING = (KeyState.ENDING.value, KeyState.ENDED.value)
K = TypeVar("K", bound=Kept)
B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """The funds of an account that keeps something."""

    standing: Standing
    is_ending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance(Generic[K]):
    """Everything that has not ended, and the money behind it, at one moment."""

    living: Sequence[K]
    funds_of: dict[str, Funds]
    capped: Capped
    now: datetime


class KeptReconciler(Reconciler, Generic[K, B]):
    """Reconciles one noun; `B` is what a backend must implement to keep it."""

    # The noun's signals and states: `making` is the state while the backend works on a new one.
    states: Any
    signals: Any
    usable: frozenset[Any]
    begun: Any

    def __init__(
        self, repository: KeptRepository[K, Any], dependencies: SandboxDependencies, retention: timedelta
    ) -> None:
        super().__init__(f"the keeper of {repository.noun}s", repository.store, repository.clock)
        self.repository = repository
        self.dependencies = dependencies
        self.retention = retention
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

    async def remove(self, record: K, signal: Any, reason: str) -> None:
        raise NotImplementedError

    def demanded(self, record: K, funds: Funds, now: datetime, reached: Reached | None) -> Any:
        """Returns the signal that time and money demand, if any."""
        raise NotImplementedError

    def moment_of(self, record: K) -> datetime:
        """Returns when time alone will demand something."""
        return record.expires_at or FAR

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
            host = self.host_of(backend)
            if host is None:
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
        usable = [one for one in await self.repository.living() if one.state in self.usable]
        now = self.clock.now()
        capped = await self.store.read(lambda conn: read_capped(conn, usable, now=now))
        for one in usable:
            if one.id in capped.reached and one.state is not self.states.UNPAID:
                await self._carry_out(one, self.signals.DRY, now, capped.reached[one.id])

    async def _settle(self, record: K, host: B, *, is_there: bool) -> None:
        """Finishes what was begun and records what is missing."""
        if record.state is self.begun:
            # Its caller got no answer. With an older copy of the database it may be complete by now.
            if not self.dependencies.is_adopted:
                await self.drop(host, record.id)
            await self.move(record, self.signals.FAIL, "server_restarted")
        elif record.state is self.states.DROPPING:
            await self.remove(record, self.signals.DROP, record.reason)
        elif record.state in self.usable:
            if not is_there or await self.is_missing(host, record.id):
                # Nobody knows when it went missing, so it is charged until it was last seen.
                await self.move(
                    record, self.signals.MISSED, "missing_on_host", at=self.dependencies.last_witnessed
                )
            else:
                await self.mend(host, record)

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
        usable = [one for one in living if one.state in self.usable]

        def read(conn: Connection) -> tuple[dict[str, Funds], Capped]:
            return read_funds(conn, self._accounts), read_capped(conn, usable, now=now, since=since)

        funds_of, capped = await self.store.read(read)
        self._looked_at = capped.seen_until
        return Glance(living=living, funds_of=funds_of, capped=capped, now=now)

    def _hear(self, topics: frozenset[str]) -> None:
        if topics & self._accounts:
            self.wake()

    async def _act(self, record: K, funds: Funds, reached: Reached | None) -> None:
        now = self.clock.now()
        signal = self.demanded(record, funds, now, reached)
        if signal is not None:
            await self._carry_out(record, signal, now, reached)
        elif record.state is self.states.DROPPING:
            # The removal was begun and not finished, because the backend failed.
            await self.remove(record, self.signals.DROP, record.reason)
        else:
            await self.tend(record)

    async def _carry_out(self, record: K, signal: Any, now: datetime, reached: Reached | None) -> None:
        until = now + self.retention
        data: dict[str, object] = {"dropped_at": until.isoformat()}
        if signal is self.signals.DRY:
            changes, reason, at = self.unpaid(record, until), "out_of_sats", None
            if reached is not None:
                data |= {"cap": reached.cap, "limit_sats": reached.limit_sats}
                reason, at = "spending_cap", reached.at
            await self.move(record, signal, reason, changes=changes, data=data, at=at)
        elif signal is self.signals.PAID:
            await self.move(record, signal, "paid", changes=self.paid(record))
        elif signal is self.signals.RETENTION_OVER and is_spared(record):
            # Nobody paid and it is locked: an event says so, and it is kept once more for the same time.
            changes = {"expires_at": until, "reason": SPARED}
            await self.move(record, None, SPARED, kind="overdue", changes=changes, data=data)
        else:
            await self.remove(record, signal, signal.value)

    async def move(
        self,
        record: K,
        signal: Any,
        reason: str,
        *,
        kind: str = "",
        changes: Mapping[str, object] | None = None,
        data: Mapping[str, object] | None = None,
        at: datetime | None = None,
    ) -> None:
        """Takes a step on behalf of this loop; `kind` is the event's kind if no signal implies it."""
        step: Step[K, Any] = Step(
            signal=signal,
            actor=self.actor,
            reason=reason,
            kind=kind and f"{self.repository.noun}.{kind}",
            changes=changes or {},
            data=data or {},
            at=at,
        )
        await self.repository.move(record.id, step)


def is_spared(record: Kept) -> bool:
    """Tells whether it is kept once more because it is locked, although nobody paid in time."""
    return record.locked_at is not None and record.reason != SPARED


def read_funds(conn: Connection, accounts: Iterable[str]) -> dict[str, Funds]:
    ending = select(delegated_keys.c.account).where(
        delegated_keys.c.account.in_(list(accounts)), delegated_keys.c.state.in_(_ENDING)
    )
    over = {row.account for row in conn.execute(ending)}
    return {one: Funds(standing=_standing(conn, one), is_ending=one in over) for one in accounts}


def _standing(conn: Connection, account: str) -> Standing:
    try:
        return load_bucket(conn, account).health.standing
    except NotFound:
        return Standing.ALIVE
