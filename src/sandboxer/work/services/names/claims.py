"""Domains of one's own: claimed by anyone, given to whoever proves control, had by one service at a time.

The proof: the domain serves a token that we made up, at a path that we chose, over plain HTTP. That is asked
before the name points here, so it needs no change of DNS beforehand, and no DNS server that knows TXT. Once
it points here our own edge serves the token of who has it, so that the proof can be looked at again.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.sandboxes.room import actor_of
from sandboxer.work.services.book import ServiceBook
from sandboxer.work.services.names.asking import WELL_KNOWN, Ask
from sandboxer.work.services.records import Domain, Service

MAX_DOMAINS = 16
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{4,253}}$){_LABEL}(\.{_LABEL})*\.[a-z][a-z0-9-]{{0,61}}[a-z0-9]")


class Domains:
    def __init__(self, book: ServiceBook, clock: Clock, ask: Ask, *, ours: str) -> None:
        self._book = book
        self._clock = clock
        self._ask = ask
        # The platform's own domain: names below it are not for anyone to claim.
        self._ours = ours

    def list(self, service: Service) -> Sequence[Domain]:
        return self._book.domains_of(service.id)

    async def claim(self, service_id: str, caller: Caller, name: str) -> Domain:
        """Claimed already is success: the token stays."""
        service = self._book.visible(service_id, caller)
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
        return await self._book.put_domain(claim, actor=actor_of(caller), kind="domain_claimed")

    async def verify(self, service_id: str, caller: Caller, name: str) -> Domain:
        """Raises Conflict saying what was found instead of the token."""
        service = self._book.visible(service_id, caller)
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
        return await self._book.put_domain(proven, actor=actor_of(caller), kind="domain_verified")

    async def remove(self, service_id: str, caller: Caller, name: str) -> None:
        service = self._book.visible(service_id, caller)
        claim = self._find(service, name)
        await self._book.drop_domain(service, claim.domain, actor=actor_of(caller))

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
