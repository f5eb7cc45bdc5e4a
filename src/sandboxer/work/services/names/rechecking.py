"""Looks at the proofs of domains again: who lost a domain must not go on being served under it.

Only what says that the name is somebody else's now counts (it resolves no more, or answers without the
token), and only after it did so for a while: a bad day of the network takes nobody's domain.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import replace
from datetime import datetime

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NotFound, SandboxerError
from sandboxer.work.services.book import ACTOR, ServiceBook
from sandboxer.work.services.names.asking import ELSEWHERE, Ask
from sandboxer.work.services.names.policy import DomainPolicy
from sandboxer.work.services.records import Domain

log = logging.getLogger(__name__)
AT_ONCE = 8


def looked_at(claim: Domain, is_served: bool, *, now: datetime, policy: DomainPolicy) -> tuple[Domain, str]:
    """The claim after a look at it, and the kind of event; the same claim if nothing changed."""
    if is_served:
        return replace(claim, failing_since=None), "domain_verified"
    if claim.failing_since is None:
        return replace(claim, failing_since=now), "domain_failing"
    if now - claim.failing_since < policy.grace:
        return claim, "domain_failing"
    return replace(claim, verified_at=None, failing_since=None), "domain_lost"


class Rechecking:
    def __init__(self, book: ServiceBook, clock: Clock, ask: Ask, policy: DomainPolicy) -> None:
        self._book = book
        self._clock = clock
        self.ask = ask
        self._policy = policy

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        while True:
            try:
                await self.look()
            except Exception:
                # An outermost loop: one bad round must not end them all.
                log.exception("could not look at domains")
            await self._clock.sleep(self._policy.every)

    async def look(self) -> None:
        """At all that are proven, a few at a time."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(claim: Domain) -> None:
            async with turns:
                try:
                    await self._look_at(claim)
                except Exception:
                    # One domain that cannot be looked at must not keep the others from it.
                    log.exception("could not look at the domain %s", claim.domain)

        async with asyncio.TaskGroup() as group:
            for claim in self._book.proven_domains():
                group.create_task(one(claim))

    async def _look_at(self, claim: Domain) -> None:
        is_served = await self._is_served(claim)
        if is_served is None:
            return
        after, kind = looked_at(claim, is_served, now=self._clock.now(), policy=self._policy)
        # What its owner did with it meanwhile stands.
        if after == claim or claim not in self._book.domains_of(claim.service_id):
            return
        try:
            await self._book.put_domain(after, actor=ACTOR, kind=kind)
        except NotFound:
            return

    async def _is_served(self, claim: Domain) -> bool | None:
        """None: nobody can tell."""
        try:
            answer = await self.ask(claim.domain)
        except SandboxerError as error:
            return False if error.facts.get("found") == ELSEWHERE else None
        return hmac.compare_digest(answer.strip(), claim.token.encode())
