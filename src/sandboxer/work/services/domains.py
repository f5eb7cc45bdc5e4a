"""Customers' own domains: anyone may claim one, and the service that proves control over it is served under
it.

The proof: the domain serves a token of ours, at a path of ours, over plain HTTP. The platform asks for it at
an address that it has checked, and follows no redirect. This works before the name points here, so it needs
neither a change of DNS beforehand nor a DNS server that supports TXT records. Once the name points here, our
own edge serves the holder's token, so that the proof can be checked again.

`ServiceTargets` tell the reverse proxy which port of which sandbox a host name or a service's id stands for.
They fit the protocol `Targets` of `access/ports/targets.py` by shape: the two packages do not import each
other, so a function given at wiring makes the value that is returned.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from sandboxer.identity.keys import Caller
from sandboxer.kernel.addresses import DialJudge, Lookups, TooManyLookups, Verdict
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, SandboxerError
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.work.services.dependencies import ServiceDependencies
from sandboxer.work.services.lifecycle import PORTS, DomainPolicy, State
from sandboxer.work.services.reconciler import Supervisor
from sandboxer.work.services.records import Domain, Service
from sandboxer.work.services.repository import ACTOR, ServiceRepository

WELL_KNOWN = "/.well-known/sandboxer-domain"
_TIMEOUT_S = 10.0
_MAX_ANSWER = 16 * 1024
# This finding means that the name belongs to somebody else now; any other failure may be a passing network
# problem.
ELSEWHERE = "elsewhere"

# Returns what a domain answers at the well-known path, on behalf of an account. Raises Conflict with the
# reason if it does not answer.
Ask = Callable[[str, str], Awaitable[bytes]]
# Returns the addresses of a name, on behalf of an account. Raises OSError or UnicodeError if there are none.
Resolve = Callable[[str, str], Awaitable[Sequence[str]]]


def system_resolver() -> Resolve:
    lookups = Lookups("domains")

    async def resolve(domain: str, owner: str) -> Sequence[str]:
        found = await lookups.addresses(domain, owner=owner)
        return [address.partition("%")[0] for address in found]

    return resolve


def asking(*, port: int, judge: DialJudge, resolve: Resolve, served_here: Callable[[str], str | None]) -> Ask:
    """Returns a function that asks a domain for its token.

    A domain that leads to this very host is never dialled, because tenants must not reach what else listens
    here. `served_here` says which token this platform serves for it.
    """

    async def ask(domain: str, owner: str) -> bytes:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if (address := await _address(domain, owner, judge, resolve)) is not None:
                    return await _get(address, domain, port)
                return _own_answer(domain, served_here(domain))
        except TimeoutError:
            raise _no_answer(domain, f"no answer within {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise _no_answer(domain, error.strerror or str(error)) from None

    return ask


async def _address(domain: str, owner: str, judge: DialJudge, resolve: Resolve) -> str | None:
    """Returns an address that may be dialled, or None if the domain leads to this host."""
    try:
        found = await resolve(domain, owner)
    except socket.gaierror as error:
        # A name server that does not answer does not mean that the name is gone.
        found_out = None if error.errno == socket.EAI_AGAIN else ELSEWHERE
        raise _no_answer(domain, "the name does not resolve", found_out) from None
    except UnicodeError:
        raise _no_answer(domain, "the name does not resolve") from None
    except TooManyLookups as error:
        raise _no_answer(domain, f"{error}; try again in a moment") from None
    verdicts = {address: judge.judge(address) for address in found}
    for address, verdict in verdicts.items():
        if verdict is Verdict.GOOD:
            return address
    if Verdict.OWN in verdicts.values():
        return None
    raise _no_answer(domain, "it resolves to no public address", ELSEWHERE)


def _own_answer(domain: str, served: str | None) -> bytes:
    if served is None:
        why = "it leads to this platform, which serves no token for it yet; prove it before it leads here"
        raise _no_answer(domain, why)
    return served.encode()


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
    if (status := re.match(rb"HTTP/1\.[01] ([0-9]{3})", head)) is None or status[1] != b"200":
        # A TLS edge in front of us answers with a redirect; only a 4xx says that somebody else answers for
        # the name.
        is_news = status is not None and status[1][:1] == b"4"
        why = f"{WELL_KNOWN} was answered by {head[:40].decode('latin-1')!r}"
        raise _no_answer(domain, why, ELSEWHERE if is_news else None)
    return body


def _no_answer(domain: str, why: str, found_out: str | None = None) -> Conflict:
    return Conflict(
        why=f"{domain} does not serve the token: {why}",
        reason="not_proven",
        found=found_out,
        hint=f"Serve the claim's token at http://{domain}{WELL_KNOWN}, and verify again.",
    )


MAX_DOMAINS = 16
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{4,253}}$){_LABEL}(\.{_LABEL})*\.[a-z][a-z0-9-]{{0,61}}[a-z0-9]")


class Domains:
    def __init__(self, repository: ServiceRepository, clock: Clock, ask: Ask, *, ours: str) -> None:
        self._repository = repository
        self._clock = clock
        self._ask = ask
        # The platform's own domain. Nobody may claim a name below it.
        self._ours = ours

    def list(self, service: Service) -> Sequence[Domain]:
        return self._repository.domains_of(service.id)

    async def claim(self, service_id: str, caller: Caller, name: str) -> Domain:
        """Records a claim and its token. A claim that exists already is returned with the token it has."""
        service = self._repository.visible(service_id, caller)
        domain = self._checked(name)
        known = {claim.domain: claim for claim in self.list(service)}
        if domain in known:
            return known[domain]
        if len(known) >= MAX_DOMAINS:
            raise Conflict(
                why=f"a service has at most {MAX_DOMAINS} domains",
                reason="too_many_domains",
                hint=f"Remove one first: GET /v1/services/{service.name}/domains.",
            )
        claim = Domain(
            domain=domain,
            service_id=service.id,
            token=secrets.token_urlsafe(24),
            verified_at=None,
            created_at=self._clock.now(),
        )
        return await self._repository.put_domain(claim, actor=actor_of(caller), kind="domain_claimed")

    async def verify(self, service_id: str, caller: Caller, name: str) -> Domain:
        """Asks the domain for the token and records the proof. Raises Conflict that says what was found
        instead.
        """
        service = self._repository.visible(service_id, caller)
        claim = self._find(service, name)
        if claim.verified_at is not None:
            return claim
        answer = (await self._ask(claim.domain, await self._repository.root_of(service.id))).strip()
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
        raise NotFound(what="domain", id=name)

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
    """Returns the claim after a check and the kind of its event; the claim is the same if nothing changed."""
    if is_served:
        return replace(claim, failing_since=None), "domain_verified"
    if claim.failing_since is None:
        return replace(claim, failing_since=now), "domain_failing"
    if now - claim.failing_since < policy.grace:
        return claim, "domain_failing"
    return replace(claim, verified_at=None, failing_since=None), "domain_lost"


class Rechecking:
    """This loop checks the proofs of domains again: whoever lost a domain must not go on being served under
    it.

    A failed check counts only if it shows that the name belongs to somebody else now (it no longer resolves,
    or it answers without the token), and only after that lasted for a while: a passing network problem costs
    nobody a domain.
    """

    def __init__(self, repository: ServiceRepository, clock: Clock, ask: Ask, policy: DomainPolicy) -> None:
        self._repository = repository
        self._clock = clock
        self.ask = ask
        self._policy = policy

    async def run(self) -> None:
        """Checks all proofs again and again until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception:
                # An outermost loop: one bad round must not end them all.
                log.exception("could not look at domains")
            await self._clock.sleep(self._policy.every)

    async def look(self) -> None:
        """Checks all proven domains once, a few at a time."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(claim: Domain) -> None:
            async with turns:
                try:
                    await self._look_at(claim)
                except Exception:
                    # One domain that cannot be checked must not keep the others from being checked.
                    log.exception("could not look at the domain %s", claim.domain)

        async with asyncio.TaskGroup() as group:
            for claim in self._repository.proven_domains():
                group.create_task(one(claim))

    async def _look_at(self, claim: Domain) -> None:
        if (is_served := await self._is_served(claim)) is None:
            return
        after, kind = looked_at(claim, is_served, now=self._clock.now(), policy=self._policy)
        # A change that its owner made meanwhile takes precedence.
        if after == claim or claim not in self._repository.domains_of(claim.service_id):
            return
        with suppress(NotFound):
            await self._repository.put_domain(after, actor=ACTOR, kind=kind)

    async def _is_served(self, claim: Domain) -> bool | None:
        """Tells whether the domain still serves the token; None if that cannot be known now."""
        try:
            answer = await self.ask(claim.domain, await self._repository.root_of(claim.service_id))
        except SandboxerError as error:
            return False if error.facts.get("found") == ELSEWHERE else None
        return hmac.compare_digest(answer.strip(), claim.token.encode())


# A request for a running service may wait this long: its process may have just ended without anybody having
# noticed.
_BLINK_S = 5.0
_COMING = frozenset({State.CREATING, State.STARTING, State.RESTARTING, State.SLEEPING, State.STOPPED})


# How long a request waits for the reconciler to notice that the sandbox runs again.
_WAKING_S = 5.0


class HasSandbox(Protocol):
    @property
    def sandbox_id(self) -> str: ...


T = TypeVar("T", bound=HasSandbox)
T_co = TypeVar("T_co", bound=HasSandbox, covariant=True)


class MakeTarget(Protocol[T_co]):
    """Makes the value that the proxy reads."""

    def __call__(
        self, *, sandbox_id: str, port: int, account: str, is_public: bool, wakes: bool, hold_s: float
    ) -> T_co: ...


class ServiceTargets(Generic[T]):
    def __init__(
        self, dependencies: ServiceDependencies, supervisor: Supervisor, make: MakeTarget[T], *, domain: str
    ) -> None:
        self._dependencies = dependencies
        self._supervisor = supervisor
        self._make = make
        self._suffix = f".{domain.lower()}"

    async def by_domain(self, host: str) -> T | None:
        """Returns the target of a service's proven domain, or of `{slug}.{domain}`."""
        name = host.lower().rstrip(".")
        repository = self._dependencies.repository
        if (service := repository.by_domain(name)) is None and name.endswith(self._suffix):
            service = repository.by_slug(name.removesuffix(self._suffix))
        return None if service is None else self._target(service)

    async def by_service(self, service_id: str) -> T | None:
        service = self._dependencies.repository.peek(service_id)
        return None if service is None else self._target(service)

    def present_port(self, sandbox_id: str, port: int) -> int:
        service = self._dependencies.repository.by_sandbox(sandbox_id)
        if service is None or service.spec.port is not None or port not in PORTS:
            return port
        return service.port or port

    def proof_of(self, host: str) -> str | None:
        return self._dependencies.repository.proof_of(host)

    async def woken(self, target: T) -> None:
        """Starts the process again after its sandbox was woken. The reconciler handles and
        reports failures.
        """
        if (service := self._dependencies.repository.by_sandbox(target.sandbox_id)) is None:
            return
        self._supervisor.reconciler(service.id).stir()
        # It may be removed meanwhile; the next request is answered accordingly.
        with suppress(NotFound):
            await self._dependencies.repository.until(service.id, _is_up, timeout_s=_WAKING_S)

    def touched(self, sandbox_id: str) -> None:
        self._dependencies.requests[sandbox_id] = self._dependencies.clock.now()

    def _target(self, service: Service) -> T:
        hold_s = 0.0
        if service.is_wanted and service.state in _COMING:
            hold_s = service.spec.health.start_timeout_s
        elif service.state in (State.RUNNING, State.UNHEALTHY):
            hold_s = min(_BLINK_S, service.spec.health.start_timeout_s)
        return self._make(
            sandbox_id=service.sandbox_id,
            port=service.port or service.spec.port or PORTS[0],
            account=service.account,
            is_public=service.spec.is_public,
            wakes=service.spec.wakes and service.is_wanted,
            hold_s=hold_s,
        )


def _is_up(service: Service) -> bool:
    return service.state not in (State.SLEEPING, State.STOPPED)
