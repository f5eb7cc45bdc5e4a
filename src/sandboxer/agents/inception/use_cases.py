"""Grants to sandboxes, from their create to their end.

A sandbox that ends takes its authority with it. What it made ends then too, and unspent money returns; or it
is adopted: it goes on with what it was given, below the account of whoever made its parent, until nothing of
it is left. The first round, and each after one that failed, compares all grants with their sandboxes; the
others look at those alone of which something was heard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, exists, select

from sandboxer.accounts import delegation, revocation
from sandboxer.accounts.delegation import DelegatedKey
from sandboxer.accounts.limits import LimitPolicy
from sandboxer.accounts.use_cases import Slots
from sandboxer.agents.inception.grants import Granting, account_of, has_authority, living_grants, sandbox_of
from sandboxer.agents.inception.relays import Relays
from sandboxer.agents.inception.tree import MadeInside, made_inside
from sandboxer.kernel.tasks import own_tasks
from sandboxer.observe.events import events, record
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import FINAL, LIVE
from sandboxer.sandboxes.records import OnParentEnd, Sandbox
from sandboxer.store.engine import Store
from sandboxer.store.reconciler import FAR, Reconciler

ACTOR = "system:inception"
ENDED, ADOPTED = "inception.ended", "inception.adopted"


class GrantEnds(Reconciler):
    def __init__(self, sandboxes: SandboxDependencies, store: Store) -> None:
        super().__init__("ends of grants", store, sandboxes.clock)
        self._sandboxes = sandboxes
        # Accounts whose adoption was told.
        self.adopted: set[str] = set()
        # Accounts with which something may be over since the last round.
        self._heard: set[str] = set()
        # Whether the last round came to its end: only then what was heard since is all there is.
        self._is_sure = False

    def look_at(self, *accounts: str) -> None:
        """Lets the next round look at these grants."""
        self._heard.update(accounts)
        self.wake()

    def _hear(self, topics: frozenset[str]) -> None:
        # A grant below an adopted account may be the last that it had, and ends later than its sandbox.
        if found := topics & self.adopted:
            self.look_at(*found)

    async def _round(self) -> datetime:
        among = self._due() if self._is_sure else None
        self._is_sure = False
        found = await self.store.read(lambda conn: living_grants(conn, among))
        for key in found:
            await self._attend(key.account, partial(self._look, key))
        for gone in (self._not_before.keys() if among is None else among) - {key.account for key in found}:
            self._not_before.pop(gone, None)
        self._is_sure = True
        return min(self._not_before.values(), default=FAR)

    def _due(self) -> set[str]:
        """Returns what was heard of, and what failed and may be tried again. What one round takes, the next
        does not: a tree of a thousand ends with a thousand looks.
        """
        heard, self._heard = self._heard, set()
        return heard | {account for account in self._not_before if not self._is_paused(account)}

    async def _look(self, key: DelegatedKey) -> None:
        sandbox = await self._sandboxes.repository.find(sandbox_of(key.account))
        if sandbox is not None and has_authority(sandbox):
            return
        made = None if sandbox is None else await made_inside(self._sandboxes, self.store, sandbox)
        is_adopted = (
            sandbox is not None
            and sandbox.inception is not None
            and sandbox.inception.on_parent_end is OnParentEnd.ADOPT
        )
        if is_adopted and await self._has_any(key.account):
            if key.account not in self.adopted:
                await self.store.write(lambda conn: self._adopt(conn, key, made))
                self.adopted.add(key.account)
            return
        await self.store.write(lambda conn: self._end(conn, key, made))
        self.adopted.discard(key.account)

    async def _has_any(self, account: str) -> bool:
        """Says whether a sandbox of the account, or a key below it, is left."""
        if any(self._sandboxes.repository.living(account)):
            return True
        return bool(await self.store.read(lambda conn: delegation.children(conn, account, living_only=True)))

    def _adopt(self, conn: Connection, key: DelegatedKey, made: MadeInside | None) -> None:
        # A server that ended since may have told it.
        told = exists().where(events.c.subject == sandbox_of(key.account), events.c.kind == ADOPTED)
        if not conn.execute(select(told)).scalar():
            self._tell(conn, key, ADOPTED, made)

    def _end(self, conn: Connection, key: DelegatedKey, made: MadeInside | None) -> None:
        ended = revocation.revoke(
            conn, key.account, actor=ACTOR, reason="its sandbox has ended", now=self.clock.now()
        )
        self._tell(conn, key, ENDED, made, accounts=len(ended.public_keys))

    def _tell(
        self, conn: Connection, key: DelegatedKey, kind: str, made: MadeInside | None, **counts: int
    ) -> None:
        data: dict[str, object] = {"account": key.account, "parent": key.parent, **counts}
        if made is not None:
            data |= {"sandboxes": made.count, "sandbox_ids": made.sandbox_ids}
        for subject in (sandbox_of(key.account), key.parent):
            record(
                conn,
                subject=subject,
                kind=kind,
                actor=ACTOR,
                reason="its sandbox has ended",
                at=self.clock.now(),
                data=data,
            )


class Inception:
    def __init__(self, sandboxes: SandboxDependencies, store: Store, relays: Relays) -> None:
        self._sandboxes = sandboxes
        self.relays = relays
        self.ends = GrantEnds(sandboxes, store)

    async def follow(self, sandbox: Sandbox) -> None:
        """Opens and closes the socket as a sandbox starts and stops, before whoever changed it goes on."""
        if sandbox.state in FINAL and sandbox.account in self.ends.adopted:
            # The last of its kin, perhaps.
            self.ends.look_at(sandbox.account)
        if sandbox.inception is None:
            return
        if sandbox.state in LIVE and sandbox.handle is not None:
            await self.relays.follow(sandbox)
            return
        self.relays.stop(sandbox.id)
        if not has_authority(sandbox):
            self.ends.look_at(account_of(sandbox.id))


@asynccontextmanager
async def open_inception(
    sandboxes: SandboxDependencies, store: Store, slots: Slots, *, is_charged: bool, policy: LimitPolicy
) -> AsyncIterator[Inception]:
    async with own_tasks() as tasks:
        inception = Inception(sandboxes, store, Relays(sandboxes, tasks))
        sandboxes.repository.with_each_new(
            Granting(slots_in_use=slots.in_use, now=sandboxes.clock.now, is_charged=is_charged, policy=policy)
        )
        sandboxes.routes.asks_from = lambda caller: sandboxes.repository.peek(sandbox_of(caller.account))
        tasks.start(inception.ends.run(), name="ends of grants")
        tasks.start(inception.relays.lead_all(), name="relays of sandboxes that run already")
        yield inception
