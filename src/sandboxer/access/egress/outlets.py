"""The outlets of all sandboxes of trust level `semi`: opened as they start, closed as they stop, and metered.

Bytes sent out are charged in batches, in the transaction that counts them, and each byte is paid once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from sandboxer.access.egress import records
from sandboxer.access.egress.authority import (
    ENVIRONMENT,
    Authority,
    KeptAuthority,
    first_files,
    make_authority,
    place_files,
)
from sandboxer.access.egress.outlet import Outlet, Secrets
from sandboxer.access.egress.policy import Packages, Rules, from_json, policy_of, refuse_denied, to_json
from sandboxer.access.egress.proxy.connection import relay_calls
from sandboxer.access.egress.proxy.dialer import Dialer, Means, Patience, Resolver, SystemResolver
from sandboxer.access.egress.records import KeptOutlet, KeptPolicy
from sandboxer.access.egress.rules import Policy
from sandboxer.accounts.authority import demand, find_authority, load_authority
from sandboxer.accounts.delegation import accounts_above
from sandboxer.backends.contract import Order, Trust
from sandboxer.backends.guest import WAY_OUT_PORT, FirstFile, Guest, Relay, Relays
from sandboxer.identity.seal import Seal
from sandboxer.kernel.addresses import Network
from sandboxer.kernel.errors import Forbidden, NotAvailable, NotFound, SandboxerError
from sandboxer.kernel.tasks import TaskOwner, together
from sandboxer.kernel.values import brief_value_class
from sandboxer.money import quotes
from sandboxer.money.metering import charge_once
from sandboxer.money.policy import Use
from sandboxer.money.pricing import Pricing, egress_msats
from sandboxer.sandboxes.dependencies import OpenGuest, SandboxDependencies
from sandboxer.sandboxes.lifecycle import FINAL, LIVE
from sandboxer.sandboxes.profiles import NetworkDefault, Profile
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.warm import Rest
from sandboxer.store.engine import Store
from sandboxer.wire.operations.declaration import Scope

log = logging.getLogger(__name__)
FLUSH_S = 2.0
_GB = 1 << 30


@dataclass(slots=True)
class _Open:
    outlet: Outlet
    kept: KeptOutlet
    # The record as last seen, because the last bytes are charged when the sandbox is already destroyed.
    sandbox: Sandbox
    task: asyncio.Task[None] | None = None
    is_closed: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Prepared:
    """The way out of a sandbox before it has a record; of a spare it does the rest when it gets an owner."""

    certificate: bytes
    sealed_key: bytes
    # Of a spare.
    begin: Callable[[Sandbox], Awaitable[None]] | None = None
    # Of its owner, as its record was written: what is kept, its own rules and those of the account.
    found: tuple[KeptOutlet, Policy, list[Policy]] | None = None

    async def __call__(self, sandbox: Sandbox) -> None:
        assert self.begin is not None
        await self.begin(sandbox)


@brief_value_class
class EgressCharges:
    pricing: Pricing

    def charge(self, conn: Connection, sandbox: Sandbox, kept: KeptOutlet, *, now: datetime) -> KeptOutlet:
        """Returns the record with everything sent so far paid for. Free profiles and slots of a tier pay
        nothing.
        """
        if kept.sent == kept.charged:
            return kept
        paid = replace(kept, charged=kept.sent)
        if sandbox.terms.is_free or sandbox.terms.is_entitled:
            return paid
        # Computed from the total and not per batch, so that rounding up is paid once.
        msats = self._msats(conn, sandbox, kept.sent) - self._msats(conn, sandbox, kept.charged)
        if msats <= 0:
            return paid
        charge_once(
            conn,
            sandbox.account,
            id=f"egress:{sandbox.id}:{kept.charges + 1}",
            subject=sandbox.id,
            use=Use.EGRESS,
            msats=msats,
            now=now,
        )
        return replace(paid, charges=kept.charges + 1)

    def _msats(self, conn: Connection, sandbox: Sandbox, count: int) -> int:
        if sandbox.terms.quote_id is not None:
            # Old quotes are pruned; sandboxes quoted by them continue at present prices.
            with suppress(NotFound):
                price = quotes.find(conn, sandbox.terms.quote_id, sandbox.account).quote.egress_gb_msats
                return -(-price * count // _GB)
        return egress_msats(sandbox.profile, count, self.pricing)


class Outlets:
    def __init__(
        self,
        dependencies: SandboxDependencies,
        store: Store,
        seal: Seal,
        tasks: TaskOwner,
        *,
        secrets: Secrets,
        charges: EgressCharges | None = None,
        resolver: Resolver | None = None,
        patience: Patience | None = None,
        never: Sequence[Network] = (),
        packages: Packages | None = None,
    ) -> None:
        self._dependencies = dependencies
        self._store = store
        self._clock = dependencies.clock
        self._seal = seal
        self._tasks = tasks
        self._charges = charges
        self.packages = packages or Packages()
        self._means = Means(
            dialer=Dialer(resolver or SystemResolver(), never=never, has_mirror=self.packages.has),
            secrets=secrets,
            now=dependencies.clock.now,
            patience=patience or Patience(),
        )
        self._open: dict[str, _Open] = {}
        # Those of spares, for as long as somebody may get them, and of sandboxes that are being made.
        self._prepared: WeakValueDictionary[str, _Prepared] = WeakValueDictionary()
        # Of those, whose disk begins with what trusts the authority; until it has started, because it may get
        # another disk later.
        self._trusting: WeakValueDictionary[str, _Prepared] = WeakValueDictionary()
        # Two tasks must not charge the same bytes.
        self._settling = asyncio.Lock()
        # Only one task at a time reads rules and applies them, so that an earlier read never wins.
        self._ruling = asyncio.Lock()
        # Rules that were written and not applied yet: of an account, or of one of its sandboxes.
        self._unapplied: set[tuple[str, str | None]] = set()
        dependencies.repository.on_change(self._changed)
        dependencies.repository.with_each_new(self._record)

    # ---- what the package below asks (sandboxes/dependencies.py) ----

    async def check(self, requested: Sandbox, secret_refs: Sequence[str]) -> None:
        """Raises what refuses the network it asks for: no such hosts, a key that may not, the account's
        rules. Nothing is narrowed in silence. What an open profile gives is refused with its record.
        """
        if requested.network in (None, "none"):
            return
        policy = self._first(requested)
        offered = {profile.network_default for profile in self._dependencies.profiles.all()}

        def read(conn: Connection) -> None:
            authority = find_authority(conn, requested.account)
            is_offered = requested.network == "packages" and NetworkDefault.PACKAGES in offered
            if authority is not None and authority.is_delegated and not is_offered:
                # Else a key could give to its sandboxes what it may not change in their rules.
                demand(authority, Scope.ACCOUNT_MANAGE, now=self._clock.now())
            refuse_denied(policy, records.wider_policies(conn, requested.account))

        await self._store.read(read)

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        if not self._leads_out(sandbox):
            return {}
        mirrors = self.packages.mirrors if self._has_packages(sandbox) else {}
        return {n: value for n, value in {**ENVIRONMENT, **mirrors}.items() if n not in sandbox.env}

    def _has_packages(self, sandbox: Sandbox) -> bool:
        profile = self._dependencies.profiles.find(sandbox.profile)
        is_profiles = profile is not None and profile.network_default is NetworkDefault.PACKAGES
        return sandbox.network == "packages" or (sandbox.network is None and is_profiles)

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        """Opens the way out of a starting sandbox. Raises NotAvailable if the backend cannot relay."""
        if not self._leads_out(sandbox):
            return
        if self._trusting.pop(sandbox.id, None) is not None:
            await self._begin(open_guest, sandbox)
            return
        guest = await open_guest()
        entry, relay = await together(self._trusted(guest, sandbox), _listen(guest, sandbox))
        self._lead(entry, relay)

    def bring(self, order: Order) -> tuple[Sequence[FirstFile], object]:
        """Makes the authority of a new sandbox before it has a record, so that its disk can begin with it."""
        if not self._has_way_out(order.trust):
            return (), None
        prepared = self._trusting[order.sandbox_id] = self._prepare(order)
        return first_files(prepared.certificate), prepared

    def _prepare(self, order: Order) -> _Prepared:
        made = make_authority(order.sandbox_id, self._clock.now())
        sealed = self._seal.close(made.key_pem, context=_context(order.sandbox_id))
        prepared = self._prepared[order.sandbox_id] = _Prepared(made.certificate_pem, sealed)
        return prepared

    async def prepare(self, order: Order, open_guest: OpenGuest) -> Rest:
        """Makes the authority of a spare, and puts in what trusts it; its rules are those of its owner."""
        if not self._has_way_out(order.trust):
            return partial(self.on_start, open_guest=open_guest)
        if (prepared := self._trusting.pop(order.sandbox_id, None)) is None:
            prepared = self._prepare(order)
            await place_files((await open_guest()).files, prepared.certificate, order.sandbox_id)
        prepared.begin = partial(self._begin, open_guest)
        return prepared

    async def _begin(self, open_guest: OpenGuest, sandbox: Sandbox) -> None:
        """Opens the way out of what was a spare: it trusts its authority already."""
        relay = await _listen(await open_guest(), sandbox)
        self._lead(await self._entry(sandbox), relay)

    def _lead(self, entry: _Open, relay: Relay) -> None:
        """Has the connections of a sandbox answered by its outlet."""
        if entry.task is not None:
            entry.task.cancel()
        entry.is_closed = False
        entry.task = self._tasks.start(
            self._relay(entry.outlet, relay),
            name=f"egress of {entry.outlet.sandbox_id}",
        )

    async def _trusted(self, guest: Guest, sandbox: Sandbox) -> _Open:
        """Returns the outlet of a sandbox that trusts its authority."""
        entry = await self._entry(sandbox)
        await place_files(guest.files, entry.kept.certificate, sandbox.id)
        return entry

    def _leads_out(self, sandbox: Sandbox) -> bool:
        """Tells whether a sandbox has a way out. Those made before the operator forbade it run on without
        one.
        """
        return self._has_way_out(sandbox.trust)

    def _has_way_out(self, trust: Trust) -> bool:
        return trust is Trust.SEMI and self._dependencies.trust_max is Trust.SEMI

    async def _relay(self, outlet: Outlet, relay: Relay) -> None:
        try:
            await relay_calls(outlet, relay, partial(self._again, outlet.sandbox_id), self._means)
        except Exception:
            # A fault in one sandbox's relay must not end the server for all others.
            log.exception("the relay of %s ended", outlet.sandbox_id)

    async def reopen(self) -> None:
        """Opens outlets after a restart of the server: connections made meanwhile are waiting inside."""
        for sandbox in self._dependencies.repository.living():
            if not self._leads_out(sandbox) or sandbox.state not in LIVE or sandbox.handle is None:
                continue
            guest = partial(self._dependencies.backend_of(sandbox).guest, sandbox.handle)
            try:
                await self.on_start(sandbox, guest)
            except SandboxerError:
                # One sandbox must not keep the server from starting for all others.
                log.exception("the way out of %s could not be opened again", sandbox.id)

    def outlet(self, sandbox_id: str) -> Outlet | None:
        entry = self._open.get(sandbox_id)
        return None if entry is None else entry.outlet

    async def renew(self, account: str, sandbox_id: str | None = None) -> int:
        """Applies the recorded rules to open outlets (of one sandbox, or of an account and the keys below it)
        and returns how many connections ended by it. If they cannot be read now, that is tried again.
        """
        self._unapplied.add(changed := (account, sandbox_id))
        async with self._ruling:
            is_one = sandbox_id is not None
            opened = [e.outlet for id, e in self._open.items() if not is_one or id == sandbox_id]

            def read(conn: Connection) -> list[tuple[Outlet, Rules]]:
                return [
                    (one, Rules(kept.policy, *records.wider_policies(conn, one.account)))
                    for one in _at_or_below(conn, account, opened)
                    if (kept := records.load_policy(conn, one.sandbox_id)) is not None
                ]

            found = await self._store.read(read)
            self._unapplied.discard(changed)
            return sum(outlet.change(rules) for outlet, rules in found)

    async def kept(self, sandbox_id: str) -> KeptOutlet | None:
        """Returns the record as it is now, whether the outlet is open or not."""
        if (entry := self._open.get(sandbox_id)) is not None:
            return _counted(entry)
        return await self._store.read(lambda conn: records.load_outlet(conn, sandbox_id))

    async def moved(self, sandbox_id: str) -> tuple[int, int]:
        """Returns the bytes sent and received in its life, also of one that is gone."""
        kept = await self.kept(sandbox_id)
        return (0, 0) if kept is None else (kept.sent, kept.received)

    def _changed(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        del steps
        if (entry := self._open.get(sandbox.id)) is None:
            if (prepared := self._prepared.pop(sandbox.id, None)) is not None and prepared.found is not None:
                # At once: whoever changes rules from now on finds it among those that are open.
                self._open[sandbox.id] = self._opened(sandbox, *prepared.found)
            return
        entry.sandbox = sandbox
        if sandbox.state in LIVE:
            return
        if entry.task is not None:
            entry.task.cancel()
            entry.task = None
        entry.outlet.idle.close()
        # The next flush writes it down and drops it.
        entry.is_closed = True

    async def _again(self, sandbox_id: str) -> Relay | None:
        sandbox = self._dependencies.repository.peek(sandbox_id)
        if sandbox is None or sandbox.handle is None or sandbox.state not in LIVE:
            return None
        return await _listen(await self._dependencies.backend_of(sandbox).guest(sandbox.handle), sandbox)

    # ---- records ----

    async def _entry(self, sandbox: Sandbox) -> _Open:
        async with self._ruling:
            if (entry := self._open.get(sandbox.id)) is not None:
                return entry
            if (found := await self._store.read(partial(_load, sandbox))) is None:
                found = await self._store.write(partial(self._ensure, sandbox))
            entry = self._open[sandbox.id] = self._opened(sandbox, *found)
            return entry

    def _opened(self, sandbox: Sandbox, kept: KeptOutlet, policy: Policy, wider: Sequence[Policy]) -> _Open:
        key = self._seal.open(kept.sealed_key, context=_context(sandbox.id))
        outlet = Outlet(
            sandbox.id,
            sandbox.account,
            Rules(policy, *wider),
            self._clock.now,
            denials=from_json(kept.denials),
            sent=kept.sent,
            received=kept.received,
            authority=Authority(KeptAuthority(kept.certificate, key)),
        )
        return _Open(outlet, kept, sandbox)

    def _record(self, conn: Connection, sandbox: Sandbox) -> None:
        """Writes what a new sandbox with a way out has of its own, in the transaction of its record."""
        if not self._leads_out(sandbox):
            return
        profile = self._dependencies.profiles.find(sandbox.profile)
        if sandbox.network is None and profile is not None:
            _refuse_open(conn, sandbox.account, profile, self._clock.now())
        prepared = self._prepared.get(sandbox.id)
        kept, policy = self._new_outlet(sandbox, prepared), self._new_policy(sandbox)
        records.insert_outlet(conn, kept)
        records.save_policy(conn, policy)
        if prepared is not None:
            # Written again if the transaction is: what counts is announced after the commit.
            prepared.found = kept, policy.policy, records.wider_policies(conn, sandbox.account)

    def _ensure(self, sandbox: Sandbox, conn: Connection) -> tuple[KeptOutlet, Policy, list[Policy]]:
        """Writes what is missing of a sandbox that had no way out when it was recorded."""
        if records.load_outlet(conn, sandbox.id) is None:
            records.insert_outlet(conn, self._new_outlet(sandbox, None))
        if records.load_policy(conn, sandbox.id) is None:
            records.save_policy(conn, self._new_policy(sandbox))
        found = _load(sandbox, conn)
        assert found is not None
        return found

    def _new_outlet(self, sandbox: Sandbox, prepared: _Prepared | None) -> KeptOutlet:
        if prepared is not None:
            certificate, sealed_key = prepared.certificate, prepared.sealed_key
        else:
            made = make_authority(sandbox.id, self._clock.now())
            certificate = made.certificate_pem
            sealed_key = self._seal.close(made.key_pem, context=_context(sandbox.id))
        return KeptOutlet(
            sandbox_id=sandbox.id, account=sandbox.account, certificate=certificate, sealed_key=sealed_key
        )

    def _new_policy(self, sandbox: Sandbox) -> KeptPolicy:
        return KeptPolicy(
            subject=sandbox.id,
            account=sandbox.account,
            policy=self._first(sandbox),
            version=1,
            changed_at=self._clock.now(),
        )

    def _first(self, sandbox: Sandbox) -> Policy:
        return policy_of(sandbox.network, self._dependencies.profiles.find(sandbox.profile), self.packages)

    # ---- counting ----

    async def run(self) -> None:
        """Records the traffic every few seconds."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        for account, sandbox_id in tuple(self._unapplied):
            with suppress(SandboxerError):
                await self.renew(account, sandbox_id)
        for sandbox_id in list(self._open):
            await self.settle(sandbox_id)

    async def settle(self, sandbox_id: str) -> None:
        """Records and charges all traffic so far."""
        async with self._settling:
            if (entry := self._open.get(sandbox_id)) is None:
                return
            if (counted := _counted(entry)) != entry.kept or entry.is_closed:
                try:
                    entry.kept = await self._store.write(partial(self._save, entry.sandbox, counted))
                except SandboxerError:
                    log.exception("the traffic of %s is not written down yet", sandbox_id)
                    return
            if entry.is_closed and not entry.outlet.flows:
                self._open.pop(sandbox_id, None)

    def _save(self, sandbox: Sandbox, counted: KeptOutlet, conn: Connection) -> KeptOutlet:
        if self._charges is not None:
            counted = self._charges.charge(conn, sandbox, counted, now=self._clock.now())
        records.save_traffic(conn, counted)
        if sandbox.state in FINAL:
            records.forget_authority(conn, sandbox.id)
        return counted


def _load(sandbox: Sandbox, conn: Connection) -> tuple[KeptOutlet, Policy, list[Policy]] | None:
    """Returns what is kept of the way out of a sandbox; None if something is missing."""
    kept, policy = records.load_outlet(conn, sandbox.id), records.load_policy(conn, sandbox.id)
    if kept is None or policy is None:
        return None
    return kept, policy.policy, records.wider_policies(conn, sandbox.account)


def _at_or_below(conn: Connection, account: str, outlets: Sequence[Outlet]) -> list[Outlet]:
    above = accounts_above(conn, {one.account for one in outlets})
    return [one for one in outlets if account in (one.account, *above.get(one.account, ()))]


def _counted(entry: _Open) -> KeptOutlet:
    outlet = entry.outlet
    denials = entry.kept.denials
    if outlet.denials.is_new:
        denials = tuple(to_json(outlet.denials))
    return replace(entry.kept, sent=outlet.sent, received=outlet.received, denials=denials)


async def _listen(guest: Guest, sandbox: Sandbox) -> Relay:
    if not isinstance(guest, Relays):
        raise NotAvailable(what="a filtered network", why=f"{sandbox.backend} cannot relay; use network none")
    return await guest.listen(WAY_OUT_PORT)


def _context(sandbox_id: str) -> str:
    return f"egress authority of {sandbox_id}"


def _refuse_open(conn: Connection, account: str, profile: Profile, now: datetime) -> None:
    """Raises Forbidden for a delegated key that has by an open profile what it may not ask for."""
    if profile.network_default is not NetworkDefault.ALLOW or not accounts_above(conn, [account]):
        return
    try:
        demand(load_authority(conn, account), Scope.ACCOUNT_MANAGE, now=now)
    except Forbidden as error:
        facts = {
            **error.facts,
            "why": f"the network of {profile.id} is open, and {error.facts['why']}",
            "hint": "Ask for network `none` (allow_internet_access=False of E2B's clients)."
            f" {error.facts.get('hint', '')}",
        }
        raise Forbidden(**facts) from None
