"""Decides which accounts' sandboxes come last on the processor: those that take most of it, while others have
sandboxes too. `Precedence` and what is above it are plain functions of what was counted; `PrecedenceLoop`
counts what each account takes, and has the heaviest give way.

Who comes last may have all that nobody else wants, and is interrupted as soon as somebody does. So nobody is
held back on a host that is his alone, and whoever asks for little need not wait behind who asks for all.

Accounts are those at the root of an ancestry: children do not make anybody more than one. What the server did
for an account counts with what its sandboxes took: on the loop, in worker threads, and in making and removing
sandboxes, which an account that gives way has done one after another (`HostWork`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field

from sandboxer.accounts.delegation import accounts_above
from sandboxer.backends.contract import GivesWay
from sandboxer.kernel.fairness import AccountQueues, HostWork
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.repository import SandboxRepository
from sandboxer.store.engine import Store


@value_class
class PrecedenceBounds:
    # The part of all cores that accounts must take, together, before they give way. Little: where other
    # programs of the host leave little to sandboxes, who gets it matters most.
    floor: float = 1 / 32
    # Who gives way takes at least so many times as much as each who does not.
    gap: float = 1.5
    # Over which more use than before is averaged, and less: who gives way takes less because of it, and is
    # not to come first again at once.
    noticed_s: float = 0.5
    forgotten_s: float = 5.0
    # For the same reason who gives way counts for so many times what it takes.
    sticky: float = 2.0
    # The part of all cores below which it is forgotten what somebody took who runs nothing.
    trace: float = 1 / 1000


def heaviest(cores_of: Mapping[str, float], cores: int, bounds: PrecedenceBounds) -> frozenset[str]:
    """Those who take most, down to the first gap; empty if there is none below them, or they take little."""
    ordered = sorted(cores_of, key=lambda account: (-cores_of[account], account))
    together = 0.0
    for number, account in enumerate(ordered[:-1], start=1):
        together += cores_of[account]
        next_one = cores_of[ordered[number]]
        if together >= bounds.floor * cores and cores_of[account] >= bounds.gap * next_one:
            return frozenset(ordered[:number])
    return frozenset()


@dataclass(slots=True)
class Precedence:
    """All times are those of time.monotonic()."""

    cores: int
    bounds: PrecedenceBounds = field(default_factory=PrecedenceBounds)
    # Cores that each account takes, on average; of those that run nothing, too, while it is not long ago:
    # who stops all of its sandboxes for a moment must not be as new afterwards.
    _taken: dict[str, float] = field(default_factory=dict)
    _counted_at: float | None = None
    _giving: frozenset[str] = frozenset()

    def is_little(self, seconds: float, passed_s: float) -> bool:
        """Whether it need not be asked whose these seconds of all together were."""
        return not self._giving and seconds < self.bounds.floor * self.cores * passed_s

    def nothing_much(self, now: float) -> None:
        """All together had little since the last call."""
        self.decide({}, frozenset(), now)

    def decide(self, used_s: Mapping[str, float], running: Set[str], now: float) -> frozenset[str]:
        """The accounts that give way from now on, of those that run a sandbox or take much without one.
        `used_s`: what each had of the processor since the last call, whether it still runs one or not.
        """
        passed_s = 0.0 if self._counted_at is None else now - self._counted_at
        self._counted_at = now
        self._taken = {
            account: self._average(self._taken.get(account, 0.0), used_s.get(account, 0.0), passed_s)
            for account in self._taken.keys() | used_s.keys() | running
        }
        trace = self.bounds.trace * self.cores
        self._taken = {one: cores for one, cores in self._taken.items() if one in running or cores > trace}
        # Whoever makes and removes sandboxes without pause often has none at the moment of a look.
        floor = self.bounds.floor * self.cores
        there = running | {one for one in used_s if self._taken.get(one, 0.0) >= floor}
        wanted = {
            account: self._taken[account] * (self.bounds.sticky if account in self._giving else 1)
            for account in there
        }
        decided = heaviest(wanted, self.cores, self.bounds)
        self._giving = decided | (self._giving & self._taken.keys() - there)
        return decided

    def _average(self, before: float, used_s: float, passed_s: float) -> float:
        cores = used_s / passed_s if passed_s > 0 else before
        over_s = self.bounds.noticed_s if cores > before else self.bounds.forgotten_s
        kept = math.exp(-passed_s / over_s)
        return kept * before + (1 - kept) * cores


log = logging.getLogger(__name__)
# Between looks at the sum of all, one small file; and at each sandbox, while all together take much.
QUIET_S, BUSY_S = 0.5, 0.1
# A look is followed by a rest of so many times what it took, within bounds: it is longer with many sandboxes.
REST_FOR_EACH, LONGEST_REST_S = 20, 2.0
_RUNNING = frozenset({State.READY, State.ACTIVE, State.GRACE})


@dataclass(slots=True, eq=False, repr=False)
class PrecedenceLoop:
    """Of one backend, on whose host all of its sandboxes are."""

    repository: SandboxRepository
    store: Store
    backend: GivesWay
    queues: AccountQueues
    work: HostWork
    is_on: bool
    _precedence: Precedence = field(default_factory=lambda: Precedence(cores=os.cpu_count() or 1))
    _all_s: float = 0.0
    # None: at the last look it was not worth while.
    _each_s: Mapping[str, float] | None = None
    _looked_at: float = field(default_factory=time.monotonic)
    _roots: dict[str, str] = field(default_factory=dict)
    _giving: frozenset[str] = frozenset()

    async def run(self) -> None:
        # A server that was killed may have left some that come last.
        await self.backend.give_way(())
        while self.is_on:
            began = time.monotonic()
            try:
                await self._look(began)
            except Exception as error:
                # An outermost loop: without it one tenant slows others down, and everything works.
                log.warning("the processor's use could not be counted: %r", error)
            rest_s = min(LONGEST_REST_S, (time.monotonic() - began) * REST_FOR_EACH)
            await asyncio.sleep(max(QUIET_S if self._each_s is None else BUSY_S, rest_s))

    async def _look(self, now: float) -> None:
        all_s, passed = await self.backend.processor_s_of_all(), now - self._looked_at
        used, self._all_s, self._looked_at = all_s - self._all_s, all_s, now
        beside = self.queues.worked_s()
        if self._precedence.is_little(used + sum(beside.values()), passed):
            self._each_s = None
            self._precedence.nothing_much(now)
            return
        before, self._each_s = self._each_s, await self.backend.processor_s()
        accounts, running = await self._accounts()
        used_s: dict[str, float] = defaultdict(float)
        for sandbox_id, seconds in self._each_s.items():
            # One that was not there at the last look has had all of its own since.
            had_s = seconds if before is None else before.get(sandbox_id, 0.0)
            if sandbox_id in accounts:
                used_s[accounts[sandbox_id]] += max(0.0, seconds - had_s)
        for account, seconds in beside.items():
            used_s[account] += seconds
        heavy = self._precedence.decide(used_s, {accounts[one] for one in running}, now)
        await self._apply(heavy, [one for one in running if accounts[one] in heavy])

    async def _apply(self, heavy: frozenset[str], sandbox_ids: Collection[str]) -> None:
        if heavy or self._giving:
            await self.backend.give_way(sandbox_ids)
        if heavy != self._giving:
            log.debug("these accounts give way on the processor: %s", ", ".join(sorted(heavy)) or "none")
        self._giving = heavy
        self.work.give_way(heavy)

    async def _accounts(self) -> tuple[dict[str, str], Collection[str]]:
        """The account at the root of each sandbox's, by sandbox; and which sandboxes run. One that was frozen
        a moment ago has run before, and that counts.
        """
        living = {one.id: one for one in self.repository.living()}
        names = {one.account for one in living.values()}
        if unknown := names - self._roots.keys():
            above = await self.store.read(lambda conn: accounts_above(conn, unknown))
            known = {account: self._roots.get(account) for account in names}
            # Only of those that have something: others are asked for again.
            self._roots = {
                account: root or above.get(account, (account,))[0] for account, root in known.items()
            }
        running = [one.id for one in living.values() if one.state in _RUNNING]
        return {one.id: self._roots[one.account] for one in living.values()}, running
