"""Counts what each account takes of the processor, and has the heaviest give way (`sandboxes/precedence.py`).

Accounts are those at the root of an ancestry: children do not make anybody more than one. What worker threads
of the server did for an account counts with what its sandboxes took.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping

from sandboxer.accounts.delegation import accounts_above
from sandboxer.backends.contract import GivesWay
from sandboxer.kernel.fairness import AccountQueues
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.precedence import Precedence
from sandboxer.sandboxes.repository import SandboxRepository
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# Between looks at the sum of all, one small file; and at each sandbox, while all together take much.
QUIET_S, BUSY_S = 0.5, 0.1
# A look is followed by a rest of so many times what it took, within bounds: it is longer with many sandboxes.
REST_FOR_EACH, LONGEST_REST_S = 20, 2.0
_RUNNING = frozenset({State.READY, State.ACTIVE, State.GRACE})


class PrecedenceLoop:
    """Of one backend, on whose host all of its sandboxes are."""

    def __init__(
        self,
        repository: SandboxRepository,
        store: Store,
        backend: GivesWay,
        queues: AccountQueues,
        *,
        is_on: bool,
    ) -> None:
        self._repository = repository
        self._store = store
        self._backend = backend
        self._queues = queues
        self._is_on = is_on
        self._precedence = Precedence(cores=os.cpu_count() or 1)
        self._all_s = 0.0
        # None: at the last look it was not worth while.
        self._each_s: Mapping[str, float] | None = None
        self._looked_at = time.monotonic()
        self._roots: dict[str, str] = {}
        self._giving: frozenset[str] = frozenset()

    async def run(self) -> None:
        # A server that was killed may have left some that come last.
        await self._backend.give_way(())
        while self._is_on:
            began = time.monotonic()
            try:
                await self._look(began)
            except Exception as error:
                # An outermost loop: without it one tenant slows others down, and everything works.
                log.warning("the processor's use could not be counted: %r", error)
            rest_s = min(LONGEST_REST_S, (time.monotonic() - began) * REST_FOR_EACH)
            await asyncio.sleep(max(QUIET_S if self._each_s is None else BUSY_S, rest_s))

    async def _look(self, now: float) -> None:
        all_s, passed = await self._backend.processor_s_of_all(), now - self._looked_at
        used, self._all_s, self._looked_at = all_s - self._all_s, all_s, now
        beside = self._queues.worked_s()
        if self._precedence.is_little(used + sum(beside.values()), passed):
            self._each_s = None
            self._precedence.nothing_much(now)
            return
        before, self._each_s = self._each_s, await self._backend.processor_s()
        accounts = await self._accounts()
        used_s: dict[str, float] = defaultdict(float)
        for sandbox_id, seconds in self._each_s.items():
            # One that was not there at the last look has had all of its own since.
            had_s = seconds if before is None else before.get(sandbox_id, 0.0)
            if sandbox_id in accounts:
                used_s[accounts[sandbox_id]] += max(0.0, seconds - had_s)
        for account, seconds in beside.items():
            if account in used_s:
                used_s[account] += seconds
        heavy = self._precedence.decide(used_s, now)
        await self._apply(heavy, [one for one, account in accounts.items() if account in heavy])

    async def _apply(self, heavy: frozenset[str], sandbox_ids: Collection[str]) -> None:
        if heavy or self._giving:
            await self._backend.give_way(sandbox_ids)
        if heavy != self._giving:
            log.debug("these accounts give way on the processor: %s", ", ".join(sorted(heavy)) or "none")
        self._giving = heavy

    async def _accounts(self) -> dict[str, str]:
        """The account at the root of each running sandbox's, by sandbox."""
        running = {one.id: one.account for one in self._repository.living() if one.state in _RUNNING}
        unknown = set(running.values()) - self._roots.keys()
        if unknown:
            above = await self._store.read(lambda conn: accounts_above(conn, unknown))
            known = {account: self._roots.get(account) for account in set(running.values())}
            # Only of those that run something: others are asked for again.
            self._roots = {
                account: root or above.get(account, (account,))[0] for account, root in known.items()
            }
        return {sandbox_id: self._roots[account] for sandbox_id, account in running.items()}
