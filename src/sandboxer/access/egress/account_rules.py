"""Rules that hold in all sandboxes of an account, beside their own: what any of them denies is denied."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from sandboxer.access.egress import records
from sandboxer.access.egress.decision import Rules
from sandboxer.access.egress.outlets import Outlets
from sandboxer.access.egress.records import KeptPolicy
from sandboxer.access.egress.rules import Policy, Rule, check_policy
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.store.engine import Store


class AccountRules:
    def __init__(self, store: Store, clock: Clock, outlets: Outlets) -> None:
        self._store = store
        self._clock = clock
        self._outlets = outlets

    async def show(self, caller: Caller) -> tuple[Rule, ...]:
        kept = await self._store.read(lambda conn: records.load_policy(conn, caller.account))
        return () if kept is None else kept.policy.rules

    async def replace(self, caller: Caller, rules: tuple[Rule, ...]) -> int:
        """How many open connections ended by it. Raises InvalidRequest, Conflict."""
        policy, now = check_policy(Policy(rules=rules)), self._clock.now()
        open_now = self._outlets.of_account(caller.account)

        def write(conn: Connection) -> list[KeptPolicy | None]:
            _save(conn, caller.account, policy, now)
            return [records.load_policy(conn, outlet.sandbox_id) for outlet in open_now]

        own = await self._store.write(write)
        pairs = zip(open_now, own, strict=True)
        return sum(outlet.change(Rules(one.policy, policy)) for outlet, one in pairs if one is not None)


def _save(conn: Connection, account: str, policy: Policy, now: datetime) -> None:
    standing = records.load_policy(conn, account)
    version = 1 if standing is None else standing.version + 1
    records.save_policy(
        conn, KeptPolicy(subject=account, account=account, policy=policy, version=version, changed_at=now)
    )
