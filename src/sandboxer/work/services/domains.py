"""Domains of one's own: claimed by anyone, given to whoever proves control, had by one service at a time.

The proof: the domain serves a token that we made up, at a path that we chose, over plain HTTP. That is asked
before the name points here, so it needs no change of DNS beforehand, and no DNS server that knows TXT.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from sandboxer.identity.keys import Caller
from sandboxer.kernel.addresses import permitted
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.sandboxes.room import actor_of
from sandboxer.work.services.book import ServiceBook
from sandboxer.work.services.records import Domain, Service

WELL_KNOWN = "/.well-known/sandboxer-domain"
MAX_DOMAINS = 16
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{4,253}}$){_LABEL}(\.{_LABEL})*\.[a-z][a-z0-9-]{{0,61}}[a-z0-9]")
_TIMEOUT_S = 10.0
_MAX_ANSWER = 16 * 1024

# What a domain answers at the well-known path. Raises Conflict saying why there is no answer.
Ask = Callable[[str], Awaitable[bytes]]


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


def asking(*, port: int, allow_private: bool) -> Ask:
    """Over the network, to an address that was checked; redirects are not followed."""

    async def ask(domain: str) -> bytes:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await _get(await _address(domain, port, allow_private), domain, port)
        except TimeoutError:
            raise _no_answer(domain, f"no answer within {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise _no_answer(domain, error.strerror or str(error)) from None

    return ask


async def _address(domain: str, port: int, allow_private: bool) -> str:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(domain, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        raise _no_answer(domain, "the name does not resolve") from None
    for info in found:
        address = str(info[4][0]).partition("%")[0]
        if permitted(ipaddress.ip_address(address), allow_private=allow_private):
            return address
    raise _no_answer(domain, "it resolves to no public address")


async def _get(address: str, domain: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(address, port, limit=_MAX_ANSWER)
    try:
        ask = f"GET {WELL_KNOWN} HTTP/1.0\r\nHost: {domain}\r\nUser-Agent: sandboxer-domains/1\r\n\r\n"
        writer.write(ask.encode("ascii"))
        raw = b""
        while len(raw) < _MAX_ANSWER and (chunk := await reader.read(_MAX_ANSWER)):
            raw += chunk
    finally:
        writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] ([0-9]{3})", head)
    if status is None or status[1] != b"200":
        raise _no_answer(domain, f"{WELL_KNOWN} was answered by {head[:40].decode('latin-1')!r}")
    return body


def _no_answer(domain: str, why: str) -> Conflict:
    return Conflict(
        why=f"{domain} does not serve the token: {why}",
        reason="not_proven",
        hint=f"Serve the claim's token at http://{domain}{WELL_KNOWN}, and verify again.",
    )
