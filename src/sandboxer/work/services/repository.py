"""The service repository is the only writer of service records, and keeps all that are not removed in memory.

The subject of its events is the service's sandbox: whoever may see the one may see the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.accounts.delegation import accounts_above
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.kernel.tasks import Changes
from sandboxer.kernel.values import value_class
from sandboxer.observe import events
from sandboxer.store import steps
from sandboxer.store.engine import Store
from sandboxer.store.repository import RememberedRepository
from sandboxer.work.services import records
from sandboxer.work.services.lifecycle import FINAL, LIFECYCLE, Signal
from sandboxer.work.services.records import Domain, Service

ACTOR = "system:services"


@value_class
class Step(steps.Step[Service, Signal]):
    """A step without a signal makes an event of the kind `service.<kind>`."""

    actor: str = ACTOR


class ServiceRepository(RememberedRepository[Service, Step]):
    noun = "service"

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock, records.rows, LIFECYCLE)
        self._by_slug: dict[str, str] = {}
        self._by_sandbox: dict[str, str] = {}
        # Claimed domains of each service, by name.
        self._domains: dict[str, dict[str, Domain]] = {}
        # Proven domains by name; every request looks here.
        self._proven: dict[str, str] = {}
        self._changes = Changes()
        self.on_change(lambda service, steps: self._changes.tell(service.id))

    async def load(self) -> Sequence[Service]:
        living = await super().load()
        for domain in await self.store.read(records.load_domains):
            self._keep_domain(domain)
        return living

    def by_slug(self, slug: str) -> Service | None:
        return self._memory.get(self._by_slug.get(slug, ""))

    def by_sandbox(self, sandbox_id: str) -> Service | None:
        return self._memory.get(self._by_sandbox.get(sandbox_id, ""))

    def visible(self, service_id: str, caller: Caller) -> Service:
        """Returns the service. Raises NotFound, also for a service of somebody else."""
        service = self._memory.get(service_id)
        if service is None or not (caller.is_owner or service.account == caller.account):
            raise NotFound(what="service", id=service_id)
        return service

    async def root_of(self, service_id: str) -> str:
        """Returns the account at the root of the service's own."""
        account = (await self._current(service_id)).account
        above = await self.store.read(lambda conn: accounts_above(conn, (account,)))
        return above.get(account, (account,))[0]

    async def recall(self, service_id: str) -> bool:
        """Tells whether the record of a service was written although its sandbox could not be made."""
        await self._look_again(service_id)
        return service_id in self._memory

    async def until(self, service_id: str, is_so: Callable[[Service], bool], *, timeout_s: float) -> Service:
        """Returns the service once the condition holds, or as it is when the time is over. Raises NotFound if
        it is removed.
        """

        async def is_over() -> bool:
            service = self._memory.get(service_id)
            return service is None or is_so(service)

        await self._changes.until(service_id, is_over, timeout_s=timeout_s)
        return self.known(service_id)

    async def amend(
        self,
        service_id: str,
        kind: str,
        *,
        actor: str = ACTOR,
        decide: Callable[[Service], Mapping[str, object]] | None = None,
        **changes: object,
    ) -> Service:
        """Changes the record without changing its state; the event's kind is `service.<kind>`."""
        step = Step(signal=None, kind=kind, reason="", actor=actor, changes=changes, decide=decide)
        return await self.move(service_id, step)

    def _admit(self, conn: Connection, wanted: Service, now: datetime) -> Service:
        if records.find_named(conn, wanted.account, wanted.name) is not None:
            raise Conflict(
                why=f"there is a service called {wanted.name} already",
                reason="name_taken",
                hint=f"Take another name, give that one the new program (POST /v1/services/{wanted.name}"
                f"/redeploy), or remove it first (DELETE /v1/services/{wanted.name}).",
            )
        return wanted

    def _record(self, conn: Connection, change: steps.Change[Service, Step]) -> None:
        if change.before is None:
            _tell(conn, change.after, Signal.REQUEST, change.after.created_by, change.now)
        for entry in change.entries:
            step = entry.step
            _tell(conn, entry.after, step.signal or step.kind, step.actor, change.now)

    async def _current(self, id: str) -> Service:
        """Of those that are not removed: who changes one knows it."""
        return self.known(id)

    def _remember(self, record: Service) -> None:
        super()._remember(record)
        if record.state not in FINAL:
            self._by_slug[record.slug] = record.id
            self._by_sandbox[record.sandbox_id] = record.id

    def _forget(self, record: Service) -> None:
        super()._forget(record)
        self._by_slug.pop(record.slug, None)
        self._by_sandbox.pop(record.sandbox_id, None)
        for domain in list(self._domains.get(record.id, ())):
            self._drop_domain(record.id, domain)

    # Domains.

    def domains_of(self, service_id: str) -> Sequence[Domain]:
        return sorted(self._domains.get(service_id, {}).values(), key=lambda one: one.domain)

    def proven_domains(self) -> Sequence[Domain]:
        return [self._domains[service_id][name] for name, service_id in self._proven.items()]

    def proof_of(self, host: str) -> str | None:
        """Returns the token of a proven domain."""
        service_id = self._proven.get(host)
        return None if service_id is None else self._domains[service_id][host].token

    def by_domain(self, host: str) -> Service | None:
        """Returns the service that has proven this domain."""
        return self._memory.get(self._proven.get(host, ""))

    async def put_domain(self, claim: Domain, *, actor: str, kind: str) -> Domain:
        """Writes a claim or a proof. Raises Conflict if another service has proven the domain."""
        service, now = self.known(claim.service_id), self.clock.now()

        def write(conn: Connection) -> None:
            current = records.rows.load(conn, claim.service_id)
            if current is None or current.state in FINAL:
                # The service was removed while its domain was being asked. A proof written now would block
                # the domain for ever.
                raise NotFound(what="service", id=claim.service_id)
            holder = records.domain_holder(conn, claim.domain)
            if holder not in (None, claim.service_id):
                raise Conflict(
                    why=f"{claim.domain} belongs to another service",
                    reason="domain_taken",
                    hint="Its owner takes it away there first; then verify it again here.",
                )
            records.put_domain(conn, claim)
            _tell(conn, service, kind, actor, now, domain=claim.domain)

        await self.store.write(write)
        self._keep_domain(claim)
        return claim

    async def drop_domain(self, service: Service, domain: str, *, actor: str) -> None:
        """Removes a domain. One that is gone already counts as success."""
        now = self.clock.now()

        def write(conn: Connection) -> None:
            records.drop_domain(conn, service.id, domain)
            _tell(conn, service, "domain_removed", actor, now, domain=domain)

        if domain in self._domains.get(service.id, {}):
            await self.store.write(write)
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
