"""Domains of one's own: claimed by anyone, given to whoever proves control, had by one service at a time.

The proof: the domain serves a token that we made up, at a path that we chose, over plain HTTP. That is asked
before the name points here, so it needs no change of DNS beforehand, and no DNS server that knows TXT. Once
it points here our own edge serves the token of who has it, so that the proof can be looked at again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, SandboxerError
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.work.services.domain_proof import ELSEWHERE, WELL_KNOWN, Ask
from sandboxer.work.services.records import Domain, Service
from sandboxer.work.services.repository import ACTOR, ServiceRepository
from sandboxer.work.services.specs import DomainPolicy

MAX_DOMAINS = 16
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{4,253}}$){_LABEL}(\.{_LABEL})*\.[a-z][a-z0-9-]{{0,61}}[a-z0-9]")


class Domains:
    def __init__(self, repository: ServiceRepository, clock: Clock, ask: Ask, *, ours: str) -> None:
        self._repository = repository
        self._clock = clock
        self._ask = ask
        # The platform's own domain: names below it are not for anyone to claim.
        self._ours = ours

    def list(self, service: Service) -> Sequence[Domain]:
        return self._repository.domains_of(service.id)

    async def claim(self, service_id: str, caller: Caller, name: str) -> Domain:
        """Claimed already is success: the token stays."""
        service = self._repository.visible(service_id, caller)
        domain = self._checked(name)
        known = {claim.domain: claim for claim in self.list(service)}
        if domain in known:
            return known[domain]
        if len(known) >= MAX_DOMAINS:
            raise Conflict(why=f"a service has at most {MAX_DOMAINS} domains", reason="too_many_domains")
        claim = Domain(
            domain=domain,
            service_id=service.id,
            token=secrets.token_urlsafe(24),
            verified_at=None,
            created_at=self._clock.now(),
        )
        return await self._repository.put_domain(claim, actor=actor_of(caller), kind="domain_claimed")

    async def verify(self, service_id: str, caller: Caller, name: str) -> Domain:
        """Raises Conflict saying what was found instead of the token."""
        service = self._repository.visible(service_id, caller)
        claim = self._find(service, name)
        if claim.verified_at is not None:
            return claim
        answer = (await self._ask(claim.domain)).strip()
        if not hmac.compare_digest(answer, claim.token.encode()):
            shown = answer[:60].decode("utf-8", "replace")
            raise Conflict(
                why=f"http://{claim.domain}{WELL_KNOWN} holds {shown!r}, not the token",
                reason="not_proven",
                hint="Serve exactly the claim's token there, and verify again.",
            )
        proven = replace(claim, verified_at=self._clock.now())
        return await self._repository.put_domain(proven, actor=actor_of(caller), kind="domain_verified")

    async def remove(self, service_id: str, caller: Caller, name: str) -> None:
        service = self._repository.visible(service_id, caller)
        claim = self._find(service, name)
        await self._repository.drop_domain(service, claim.domain, actor=actor_of(caller))

    def _find(self, service: Service, name: str) -> Domain:
        wanted = name.lower().rstrip(".")
        for claim in self.list(service):
            if claim.domain == wanted:
                return claim
        raise NotFound(what="domain of this service", id=name)

    def _checked(self, name: str) -> str:
        domain = name.lower().rstrip(".")
        if _DOMAIN.fullmatch(domain) is None:
            raise InvalidRequest(field="domain", why="it must be a domain like app.example.com, in ASCII")
        if domain == self._ours or domain.endswith(f".{self._ours}"):
            raise InvalidRequest(field="domain", why=f"names below {self._ours} are given by the platform")
        return domain


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
    """Looks at the proofs of domains again: who lost a domain must not go on being served under it.

    Only what says that the name is somebody else's now counts (it resolves no more, or answers without the
    token), and only after it did so for a while: a bad day of the network takes nobody's domain.
    """

    def __init__(self, repository: ServiceRepository, clock: Clock, ask: Ask, policy: DomainPolicy) -> None:
        self._repository = repository
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
            for claim in self._repository.proven_domains():
                group.create_task(one(claim))

    async def _look_at(self, claim: Domain) -> None:
        is_served = await self._is_served(claim)
        if is_served is None:
            return
        after, kind = looked_at(claim, is_served, now=self._clock.now(), policy=self._policy)
        # What its owner did with it meanwhile stands.
        if after == claim or claim not in self._repository.domains_of(claim.service_id):
            return
        try:
            await self._repository.put_domain(after, actor=ACTOR, kind=kind)
        except NotFound:
            return

    async def _is_served(self, claim: Domain) -> bool | None:
        """None: nobody can tell."""
        try:
            answer = await self.ask(claim.domain)
        except SandboxerError as error:
            return False if error.facts.get("found") == ELSEWHERE else None
        return hmac.compare_digest(answer.strip(), claim.token.encode())
