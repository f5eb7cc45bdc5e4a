"""The use cases of egress: a sandbox's rules are shown, changed and explained, with its traffic and what was
refused.

`AccountRules` apply to all sandboxes of an account besides their own rules: what any of them denies is
denied, also in sandboxes of delegated keys. `open_egress` opens the outlets: relays for what runs already, a
hook for what starts, and a loop that counts and charges.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.access.egress import records
from sandboxer.access.egress.outlet import Secrets
from sandboxer.access.egress.outlets import EgressCharges, Outlets
from sandboxer.access.egress.policy import Denial, Deny, Explained, Packages, Rules, ask_of, decide, from_json
from sandboxer.access.egress.records import KeptOutlet, KeptPolicy
from sandboxer.access.egress.rules import Policy, Rule, check_policy
from sandboxer.backends.contract import Trust
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.addresses import Network
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.money.pricing import Pricing
from sandboxer.observe import events
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.records import Sandbox
from sandboxer.store.engine import Store


@value_class
class Shown:
    policy: KeptPolicy
    traffic: KeptOutlet
    # Connections that are open now, and those that this change ended.
    open: int
    ended: int = 0


Decide = Callable[[tuple[Rule, ...]], tuple[Rule, ...]]


@value_class
class AccountShown:
    rules: tuple[Rule, ...] = ()
    # 0 if there never were any.
    version: int = 0
    # How many open connections this change ended.
    ended: int = 0


class Egress:
    def __init__(self, sandboxes: SandboxDependencies, store: Store, outlets: Outlets) -> None:
        self._sandboxes = sandboxes
        self._store = store
        self.outlets = outlets
        self.account = AccountRules(store, sandboxes.clock, outlets)

    async def show(self, sandbox_id: str, caller: Caller) -> Shown:
        """Returns the rules and the traffic. Raises NotFound, and Conflict for a sandbox of trust level
        `zero`.
        """
        return await self._shown(await self._semi(sandbox_id, caller))

    async def change(
        self,
        sandbox_id: str,
        caller: Caller,
        decide_policy: Callable[[Policy], Policy],
        *,
        version: int | None = None,
    ) -> Shown:
        """Changes the rules, with effect at once; with `version` only if that is the present one. Raises
        Conflict, InvalidRequest.
        """
        sandbox = await self._semi(sandbox_id, caller)
        now = self._sandboxes.clock.now()

        await self._store.write(lambda conn: self._write(conn, sandbox, caller, decide_policy, version, now))
        ended = await self.outlets.renew(sandbox.account, sandbox.id)
        return replace(await self._shown(sandbox), ended=ended)

    async def explain(self, sandbox_id: str, caller: Caller, url: str, method: str) -> Explained:
        """Returns what the proxy would decide, without looking up the host."""
        sandbox = await self._semi(sandbox_id, caller)
        ask = ask_of(url, method)
        if (outlet := self.outlets.outlet(sandbox_id)) is not None:
            return Explained(ask=ask, verdict=outlet.decide(ask))
        shown = await self._shown(sandbox)
        wider = await self._store.read(lambda conn: records.wider_policies(conn, sandbox.account))
        rules = Rules(shown.policy.policy, *wider)
        return Explained(ask=ask, verdict=decide(rules, ask))

    async def denials(self, sandbox_id: str, caller: Caller) -> list[Denial]:
        """Returns what was refused, latest first; also for a sandbox that is gone."""
        await self._sandboxes.visible(sandbox_id, caller)
        kept = await self.outlets.kept(sandbox_id)
        return [] if kept is None else from_json(kept.denials).latest()

    async def _semi(self, sandbox_id: str, caller: Caller) -> Sandbox:
        sandbox = await self._sandboxes.visible(sandbox_id, caller)
        if sandbox.trust is not Trust.SEMI:
            raise Conflict(
                why="the sandbox has no network, so there are no rules for one",
                hint="This one never gets any; make another with network `packages`, `open` or `allow:HOST`:"
                " POST /v1/sandboxes.",
            )
        return sandbox

    async def _shown(self, sandbox: Sandbox) -> Shown:
        policy = await self._store.read(lambda conn: records.load_policy(conn, sandbox.id))
        traffic = await self.outlets.kept(sandbox.id)
        if policy is None or traffic is None:
            raise _no_way_out(sandbox)
        outlet = self.outlets.outlet(sandbox.id)
        return Shown(policy=policy, traffic=traffic, open=0 if outlet is None else len(outlet.flows))

    def _write(
        self,
        conn: Connection,
        sandbox: Sandbox,
        caller: Caller,
        decide_policy: Callable[[Policy], Policy],
        version: int | None,
        now: datetime,
    ) -> None:
        if (standing := records.load_policy(conn, sandbox.id)) is None:
            raise _no_way_out(sandbox)
        changed = _save(conn, standing, decide_policy, version, now, what="the rules")
        _tell(conn, changed, kind="sandbox.egress_changed", caller=caller)


class AccountRules:
    def __init__(self, store: Store, clock: Clock, outlets: Outlets) -> None:
        self._store = store
        self._clock = clock
        self._outlets = outlets

    async def show(self, caller: Caller) -> AccountShown:
        kept = await self._store.read(lambda conn: records.load_policy(conn, caller.account))
        return AccountShown() if kept is None else AccountShown(rules=kept.policy.rules, version=kept.version)

    async def explain(self, caller: Caller, url: str, method: str) -> Explained:
        """Returns what these rules alone decide, for all sandboxes."""
        ask = ask_of(url, method)
        verdict = decide(Rules(Policy(rules=(await self.show(caller)).rules)), ask)
        if isinstance(verdict, Deny) and verdict.rule is None:
            why = f"{verdict.why} in all sandboxes; those decide whose own rules are about it"
            verdict = Deny(verdict.reason, why)
        return Explained(ask=ask, verdict=verdict)

    async def change(self, caller: Caller, decide_rules: Decide, *, version: int | None) -> AccountShown:
        """Changes the rules, with effect at once; with `version` only if that is the present one. Raises
        InvalidRequest, Conflict.
        """
        account, now = caller.account, self._clock.now()
        none = KeptPolicy(subject=account, account=account, policy=Policy(), version=0, changed_at=now)

        def write(conn: Connection) -> KeptPolicy:
            standing = records.load_policy(conn, account) or none
            changed = _save(
                conn,
                standing,
                lambda policy: Policy(rules=decide_rules(policy.rules)),
                version,
                now,
                what="the account's rules",
            )
            _tell(conn, changed, kind="account.egress_changed", caller=caller)
            return changed

        changed = await self._store.write(write)
        ended = await self._outlets.renew(caller.account)
        return AccountShown(rules=changed.policy.rules, version=changed.version, ended=ended)


def _save(
    conn: Connection,
    standing: KeptPolicy,
    decide_policy: Callable[[Policy], Policy],
    version: int | None,
    now: datetime,
    *,
    what: str,
) -> KeptPolicy:
    """Saves the next version of a policy. Raises Conflict unless `version` is the present one or None."""
    if version is not None and version != standing.version:
        raise Conflict(
            why=f"{what} are at version {standing.version} by now, not {version}",
            hint=records.LOOK_AGAIN,
        )
    policy = check_policy(decide_policy(standing.policy))
    changed = replace(standing, policy=policy, version=standing.version + 1, changed_at=now)
    records.save_policy(conn, changed)
    return changed


def _tell(conn: Connection, changed: KeptPolicy, *, kind: str, caller: Caller) -> None:
    policy = changed.policy
    events.record(
        conn,
        subject=changed.subject,
        kind=kind,
        actor=caller.public_key,
        reason="egress_changed",
        at=changed.changed_at,
        data={"version": changed.version, "rules": len(policy.rules), "default": policy.default.value},
    )


@asynccontextmanager
async def open_egress(
    sandboxes: SandboxDependencies,
    store: Store,
    seal: Seal,
    *,
    secrets: Secrets,
    pricing: Pricing | None,
    never: Sequence[Network] = (),
    packages: Packages | None = None,
) -> AsyncIterator[Egress]:
    """Opens the package. `pricing` None means that nobody pays here. `never` are networks that nobody may
    reach, `packages` the operator's additions to the hosts that serve packages.
    """
    dependencies = sandboxes
    charges = None if pricing is None else EgressCharges(pricing)
    async with own_tasks() as relays:
        outlets = Outlets(
            dependencies,
            store,
            seal,
            relays,
            secrets=secrets,
            charges=charges,
            never=never,
            packages=packages,
        )
        dependencies.start_hooks.append(outlets)
        try:
            await outlets.reopen()
            async with own_tasks() as loops:
                loops.start(outlets.run(), name="egress traffic")
                yield Egress(sandboxes, store, outlets)
        finally:
            dependencies.start_hooks.remove(outlets)
            await outlets.flush()


def _no_way_out(sandbox: Sandbox) -> Conflict:
    return Conflict(
        why="the sandbox has no way out yet, or none any more",
        hint=f"See how it is: GET /v1/sandboxes/{sandbox.id}.",
    )
