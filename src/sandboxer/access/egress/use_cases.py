"""Egress for the edges: a sandbox's rules, read, changed and explained; what it moved and was refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.access.egress import records
from sandboxer.access.egress.account_rules import AccountRules
from sandboxer.access.egress.asking import Explained, ask_of
from sandboxer.access.egress.decision import Rules, decide
from sandboxer.access.egress.denials import Denial, from_json
from sandboxer.access.egress.outlets import Outlets
from sandboxer.access.egress.records import KeptOutlet, KeptPolicy
from sandboxer.access.egress.rules import Policy, check_policy
from sandboxer.backends.contract import Trust
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict
from sandboxer.observe import events
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    policy: KeptPolicy
    traffic: KeptOutlet
    # Connections that are open now, and those that the change just made ended.
    open: int
    ended: int = 0


class Egress:
    def __init__(self, sandboxes: SandboxUseCases, store: Store, outlets: Outlets) -> None:
        self._sandboxes = sandboxes
        self._store = store
        self.outlets = outlets
        self.account = AccountRules(store, sandboxes.room.clock, outlets)

    async def show(self, sandbox_id: str, caller: Caller) -> Shown:
        """Raises NotFound, Conflict for one of trust level `zero`."""
        sandbox = await self._semi(sandbox_id, caller)
        return await self._shown(sandbox)

    async def change(
        self,
        sandbox_id: str,
        caller: Caller,
        decide_policy: Callable[[Policy], Policy],
        *,
        version: int | None = None,
    ) -> Shown:
        """Felt at once. With `version` only if that one stands. Raises Conflict, InvalidRequest."""
        sandbox = await self._semi(sandbox_id, caller)
        now = self._sandboxes.room.clock.now()

        await self._store.write(lambda conn: self._write(conn, sandbox, caller, decide_policy, version, now))
        ended = await self.outlets.renew(sandbox.account, sandbox.id)
        return replace(await self._shown(sandbox), ended=ended)

    async def explain(self, sandbox_id: str, caller: Caller, url: str, method: str) -> Explained:
        """What the proxy would say, without asking anybody where the host is."""
        sandbox = await self._semi(sandbox_id, caller)
        ask = ask_of(url, method)
        outlet = self.outlets.outlet(sandbox_id)
        if outlet is not None:
            return Explained(ask=ask, verdict=outlet.decide(ask))
        shown = await self._shown(sandbox)
        wider = await self._store.read(lambda conn: records.load_policy(conn, sandbox.account))
        rules = Rules(shown.policy.policy, *([] if wider is None else [wider.policy]))
        return Explained(ask=ask, verdict=decide(rules, ask))

    async def denials(self, sandbox_id: str, caller: Caller) -> list[Denial]:
        """Latest first; of one that is gone, too."""
        await self._sandboxes.get(sandbox_id, caller)
        kept = await self.outlets.kept(sandbox_id)
        return [] if kept is None else from_json(kept.denials).latest()

    async def _semi(self, sandbox_id: str, caller: Caller) -> Sandbox:
        sandbox = await self._sandboxes.get(sandbox_id, caller)
        if sandbox.trust is not Trust.SEMI:
            raise Conflict(
                why="the sandbox has trust level zero: there is no way out of it, and no rules for one",
                hint="Create one with trust `semi`; the trust level of a sandbox never changes.",
            )
        return sandbox

    async def _shown(self, sandbox: Sandbox) -> Shown:
        policy = await self._store.read(lambda conn: records.load_policy(conn, sandbox.id))
        traffic = await self.outlets.kept(sandbox.id)
        if policy is None or traffic is None:
            raise Conflict(why="the sandbox has no way out yet, or none any more")
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
        standing = records.load_policy(conn, sandbox.id)
        if standing is None:
            raise Conflict(why="the sandbox has no way out yet, or none any more")
        if version is not None and version != standing.version:
            raise Conflict(why=f"the rules are at version {standing.version} by now, not {version}")
        policy = check_policy(decide_policy(standing.policy))
        changed = replace(standing, policy=policy, version=standing.version + 1, changed_at=now)
        records.save_policy(conn, changed)
        events.record(
            conn,
            subject=sandbox.id,
            kind="sandbox.egress_changed",
            actor=caller.public_key,
            reason="egress_changed",
            at=now,
            data={"version": changed.version, "rules": len(policy.rules), "default": policy.default.value},
        )
