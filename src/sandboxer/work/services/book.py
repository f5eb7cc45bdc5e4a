"""The book of services: the only writer of their records, and a memory of all that are not removed.

Each step is one short transaction that changes the record and records the event, whose subject is the
service's sandbox: who may see the one may see the other. One server owns one book, so the memory is the
truth for reads on the hot path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.observe import events
from sandboxer.store.engine import Store
from sandboxer.work.services import records
from sandboxer.work.services.records import Domain, Service, stepped
from sandboxer.work.services.states import FINAL, Signal, State, next_state

ACTOR = "system:services"
_TRIES = 8


class ServiceBook:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._by_id: dict[str, Service] = {}
        self._by_slug: dict[str, str] = {}
        self._by_sandbox: dict[str, str] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        # Of each service, by name.
        self._domains: dict[str, dict[str, Domain]] = {}
        # Proven domains, by name: asked for every request.
        self._proven: dict[str, str] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def load(self) -> None:
        """Fill the memory; once, at start."""
        for service in await self._store.read(records.load_left):
            self._remember(service)
        for domain in await self._store.read(records.load_domains):
            self._keep_domain(domain)

    def all(self) -> Iterator[Service]:
        return iter(list(self._by_id.values()))

    def peek(self, service_id: str) -> Service | None:
        return self._by_id.get(service_id)

    def by_slug(self, slug: str) -> Service | None:
        return self._by_id.get(self._by_slug.get(slug, ""))

    def by_sandbox(self, sandbox_id: str) -> Service | None:
        return self._by_id.get(self._by_sandbox.get(sandbox_id, ""))

    def visible(self, service_id: str, caller: Caller) -> Service:
        """By id or by name. Someone else's is NotFound like one that never was."""
        service = self._by_id.get(service_id) or self._named(service_id, caller.account)
        if service is None or not (caller.is_owner or service.account == caller.account):
            raise NotFound(what="service", id=service_id)
        return service

    async def page(
        self, *, account: str | None, state: State | None, cursor: str | None, limit: int
    ) -> records.Page:
        return await self._store.read(
            lambda conn: records.page(conn, account=account, state=state, cursor=cursor, limit=limit)
        )

    def opening(self, service: Service) -> Callable[[Connection], None]:
        """For the transaction that makes its sandbox: the record of a new service, and the event."""

        def write(conn: Connection) -> None:
            if records.find_named(conn, service.account, service.name) is not None:
                raise Conflict(
                    why=f"there is a service called {service.name} already",
                    reason="name_taken",
                    hint="Take another name, redeploy that service, or remove it first.",
                )
            records.insert_service(conn, service)
            _tell(conn, service, Signal.REQUEST, service.created_by, service.created_at)

        return write

    def opened(self, service: Service) -> None:
        """Its transaction was committed."""
        self._remember(service)

    async def recall(self, service_id: str) -> bool:
        """Was the record of a service written whose sandbox came to nothing?"""
        await self._look_again(service_id)
        return service_id in self._by_id

    async def until(self, service_id: str, is_so: Callable[[Service], bool], *, timeout_s: float) -> Service:
        """It, once that is so, or as it is when the time is over. Raises NotFound if it is removed."""
        changed = asyncio.Event()
        self._waiting.setdefault(service_id, set()).add(changed)
        try:
            async with asyncio.timeout(timeout_s):
                while (service := self._by_id.get(service_id)) is not None and not is_so(service):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[service_id].discard(changed)
            if not self._waiting[service_id]:
                del self._waiting[service_id]
        found = self._by_id.get(service_id)
        if found is None:
            raise NotFound(what="service", id=service_id)
        return found

    async def move(
        self,
        service_id: str,
        signal: Signal,
        reason: str,
        *,
        actor: str = ACTOR,
        changes: Mapping[str, object] | None = None,
        also: Callable[[Connection], None] | None = None,
    ) -> Service:
        """One step from the state it is in now. Raises IllegalTransition, NotFound, Conflict."""
        return await self._change(service_id, signal, reason, actor, lambda _: changes or {}, also)

    async def amend(
        self,
        service_id: str,
        kind: str,
        *,
        actor: str = ACTOR,
        decide: Callable[[Service], Mapping[str, object]],
    ) -> Service:
        """Change the record within its state; the event's kind is `service.<kind>`."""
        return await self._change(service_id, kind, None, actor, decide, None)

    async def _change(
        self,
        service_id: str,
        step: Signal | str,
        reason: str | None,
        actor: str,
        decide: Callable[[Service], Mapping[str, object]],
        also: Callable[[Connection], None] | None,
    ) -> Service:
        for _ in range(_TRIES):
            before = self._by_id.get(service_id)
            if before is None:
                raise NotFound(what="service", id=service_id)
            now = self._clock.now()
            state = next_state(before.state, step) if isinstance(step, Signal) else before.state
            after = stepped(
                before,
                state,
                reason=before.reason if reason is None else reason,
                now=now,
                changes=decide(before),
            )

            def write(conn: Connection, b: Service = before, a: Service = after, n: datetime = now) -> bool:
                if not records.replace_service(conn, b, a):
                    return False
                if also is not None:
                    also(conn)
                _tell(conn, a, step, actor, n)
                return True

            if await self._store.write(write):
                return self._remember(after)
            await self._look_again(service_id)
        raise Conflict(why=f"service {service_id} is changing too fast")

    async def _look_again(self, service_id: str) -> None:
        stored = await self._store.read(lambda conn: records.load_service(conn, service_id))
        if stored is not None:
            self._remember(stored)

    def _remember(self, service: Service) -> Service:
        known = self._by_id.get(service.id)
        if known is not None and known.version >= service.version:
            return service
        if service.state in FINAL:
            self._by_id.pop(service.id, None)
            self._by_slug.pop(service.slug, None)
            self._by_sandbox.pop(service.sandbox_id, None)
            if self._by_name.get((service.account, service.name)) == service.id:
                del self._by_name[service.account, service.name]
            for domain in list(self._domains.get(service.id, ())):
                self._drop_domain(service.id, domain)
        else:
            self._by_id[service.id] = service
            self._by_slug[service.slug] = service.id
            self._by_sandbox[service.sandbox_id] = service.id
            self._by_name[service.account, service.name] = service.id
        for changed in self._waiting.get(service.id, ()):
            changed.set()
        return service

    def _named(self, name: str, account: str) -> Service | None:
        return self._by_id.get(self._by_name.get((account, name), ""))

    # Domains.

    def domains_of(self, service_id: str) -> Sequence[Domain]:
        return sorted(self._domains.get(service_id, {}).values(), key=lambda one: one.domain)

    def proven_domains(self) -> Sequence[Domain]:
        return [self._domains[service_id][name] for name, service_id in self._proven.items()]

    def proof_of(self, host: str) -> str | None:
        """The token of a proven domain."""
        service_id = self._proven.get(host)
        return None if service_id is None else self._domains[service_id][host].token

    def by_domain(self, host: str) -> Service | None:
        """Whose proven domain this is."""
        return self._by_id.get(self._proven.get(host, ""))

    async def put_domain(self, claim: Domain, *, actor: str, kind: str) -> Domain:
        """Raises Conflict if another service has proven it."""
        service, now = self._by_id.get(claim.service_id), self._clock.now()
        if service is None:
            raise NotFound(what="service", id=claim.service_id)

        def write(conn: Connection) -> None:
            current = records.load_service(conn, claim.service_id)
            if current is None or current.state in FINAL:
                # Removed while its domain was asked: nobody could ever take the domain again.
                raise NotFound(what="service", id=claim.service_id)
            holder = records.domain_holder(conn, claim.domain)
            if holder not in (None, claim.service_id):
                raise Conflict(why=f"{claim.domain} belongs to another service", reason="domain_taken")
            records.put_domain(conn, claim)
            _tell(conn, service, kind, actor, now, domain=claim.domain)

        await self._store.write(write)
        self._keep_domain(claim)
        return claim

    async def drop_domain(self, service: Service, domain: str, *, actor: str) -> None:
        """Gone already is success."""
        now = self._clock.now()

        def write(conn: Connection) -> None:
            records.drop_domain(conn, service.id, domain)
            _tell(conn, service, "domain_removed", actor, now, domain=domain)

        if domain in self._domains.get(service.id, {}):
            await self._store.write(write)
            self._drop_domain(service.id, domain)

    def _keep_domain(self, claim: Domain) -> None:
        self._domains.setdefault(claim.service_id, {})[claim.domain] = claim
        if claim.verified_at is not None:
            self._proven[claim.domain] = claim.service_id
        elif self._proven.get(claim.domain) == claim.service_id:
            del self._proven[claim.domain]

    def _drop_domain(self, service_id: str, domain: str) -> None:
        mine = self._domains.get(service_id, {})
        mine.pop(domain, None)
        if not mine:
            self._domains.pop(service_id, None)
        if self._proven.get(domain) == service_id:
            del self._proven[domain]


def _tell(
    conn: Connection, service: Service, step: Signal | str, actor: str, now: datetime, **facts: object
) -> None:
    is_step = isinstance(step, Signal)
    events.record(
        conn,
        subject=service.sandbox_id,
        kind=f"service.{service.state.value if is_step else step}",
        actor=actor,
        reason=service.reason,
        at=now,
        data={"service_id": service.id, "name": service.name, "signal": str(step), **facts},
    )
