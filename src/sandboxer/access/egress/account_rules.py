"""Rules that hold in all sandboxes of an account, beside their own: what any of them denies is denied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.access.egress import records
from sandboxer.access.egress.asking import Explained, ask_of
from sandboxer.access.egress.decision import Deny, Rules, decide
from sandboxer.access.egress.outlets import Outlets
from sandboxer.access.egress.records import KeptPolicy
from sandboxer.access.egress.rules import Policy, Rule, check_policy
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict
from sandboxer.store.engine import Store

Decide = Callable[[tuple[Rule, ...]], tuple[Rule, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountShown:
    rules: tuple[Rule, ...] = ()
    # 0: there were never any.
    version: int = 0
    # Open connections that the change just made ended.
    ended: int = 0


class AccountRules:
    def __init__(self, store: Store, clock: Clock, outlets: Outlets) -> None:
        self._store = store
        self._clock = clock
        self._outlets = outlets

    async def show(self, caller: Caller) -> AccountShown:
        kept = await self._store.read(lambda conn: records.load_policy(conn, caller.account))
        return AccountShown() if kept is None else AccountShown(rules=kept.policy.rules, version=kept.version)

    async def explain(self, caller: Caller, url: str, method: str) -> Explained:
        """What these rules alone say, for all sandboxes."""
        ask = ask_of(url, method)
        verdict = decide(Rules(Policy(rules=(await self.show(caller)).rules)), ask)
        if isinstance(verdict, Deny) and verdict.rule is None:
            why = f"{verdict.why} in all sandboxes; those decide whose own rules are about it"
            verdict = Deny(verdict.reason, why)
        return Explained(ask=ask, verdict=verdict)

    async def change(self, caller: Caller, decide_rules: Decide, *, version: int | None) -> AccountShown:
        """Felt at once. With `version` only if that one stands. Raises InvalidRequest, Conflict."""
        now = self._clock.now()
        changed = await self._store.write(
            lambda conn: _save(conn, caller.account, decide_rules, version, now)
        )
        ended = await self._outlets.renew(caller.account)
        return AccountShown(rules=changed.policy.rules, version=changed.version, ended=ended)


def _save(
    conn: Connection, account: str, decide_rules: Decide, version: int | None, now: datetime
) -> KeptPolicy:
    standing = records.load_policy(conn, account)
    number, rules = (0, ()) if standing is None else (standing.version, standing.policy.rules)
    if version is not None and version != number:
        raise Conflict(why=f"the account's rules are at version {number} by now, not {version}")
    policy = check_policy(Policy(rules=decide_rules(rules)))
    changed = KeptPolicy(subject=account, account=account, policy=policy, version=number + 1, changed_at=now)
    records.save_policy(conn, changed)
    return changed
