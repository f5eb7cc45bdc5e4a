"""A grant is an account of its own below the account of whoever made the sandbox, with a budget, scopes,
depth and slots cut from it (`accounts/delegation.py`). Nobody has a key of it: only the socket of that one
sandbox leads to it.

It is cut in the transaction of the sandbox's record, and its account is named after the sandbox, so that
there is nothing else to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy import Connection, select

from sandboxer.accounts import delegation
from sandboxer.accounts.authority import INSIDE, KeyState, parse_scopes
from sandboxer.accounts.delegation import Cut, DelegatedKey, key_of
from sandboxer.accounts.limits import LimitPolicy
from sandboxer.accounts.records import delegated_keys
from sandboxer.accounts.use_cases import demand_funds_for_key
from sandboxer.backends.contract import Trust
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller, generate
from sandboxer.kernel.errors import Forbidden
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.lifecycle import OVER
from sandboxer.sandboxes.records import Sandbox, rows

_ACCOUNT, _SANDBOX = "acc_", "sbx_"
# Of the names of such keys.
NAME = "inside "
_CHUNK = 500


def account_of(sandbox_id: str) -> str:
    return _ACCOUNT + sandbox_id.removeprefix(_SANDBOX)


def sandbox_of(account: str) -> str:
    return _SANDBOX + account.removeprefix(_ACCOUNT)


def caller_of(sandbox: Sandbox) -> Caller:
    """Returns who the programs in a sandbox are for the platform."""
    return Caller(public_key=INSIDE + sandbox.id, account=account_of(sandbox.id))


def has_authority(sandbox: Sandbox) -> bool:
    """Says whether it was granted anything and has not ended."""
    return sandbox.inception is not None and sandbox.state not in OVER


@value_class
class Granting:
    """Cuts what a new sandbox is granted, in the transaction of its record."""

    # How many sandboxes an account has.
    slots_in_use: Callable[[str], int]
    now: Callable[[], datetime]
    is_charged: bool
    policy: LimitPolicy

    def __call__(self, conn: Connection, sandbox: Sandbox) -> None:
        """Raises InsufficientCredit, and Forbidden naming the axis on which it asks for too much."""
        _demand_no_way_out(conn, sandbox)
        if (wanted := sandbox.inception) is None:
            return
        now, child = self.now(), account_of(sandbox.id)
        made = delegation.cut(
            conn,
            sandbox.account,
            Cut(
                name=NAME + sandbox.id,
                budget_sats=wanted.budget_sats,
                scopes=parse_scopes(wanted.scopes),
                depth=wanted.depth,
                slots=wanted.slots,
            ),
            # The secret is thrown away: no request can be signed by it.
            public_key=generate(child, NAME, accepts_v1=False).public_key,
            cut_by=sandbox.created_by,
            account=child,
            # It takes one itself.
            slots_in_use=self.slots_in_use(sandbox.account) + 1,
            policy=self.policy,
            now=now,
        )
        if self.is_charged and not wanted.budget_sats and made.root != OWNER_ACCOUNT:
            demand_funds_for_key(conn, made, now=now)


def _demand_no_way_out(conn: Connection, sandbox: Sandbox) -> None:
    """Raises Forbidden for a network below a sandbox that has none: whoever uses both would have it, too."""
    if sandbox.trust is Trust.ZERO or not sandbox.account.startswith(_ACCOUNT):
        return
    parent = rows.load(conn, sandbox_of(sandbox.account))
    if parent is not None and parent.inception is not None and parent.trust is Trust.ZERO:
        raise _without_network("makes none that has one", "Ask for trust `zero`, or network `none`.")


def demand_network(sandbox: Sandbox | None) -> None:
    """Raises Forbidden unless the sandbox that asks has a network. Pure."""
    if sandbox is None or sandbox.trust is Trust.ZERO:
        raise _without_network(
            "gets none by the platform",
            "Whoever made it can ask for this from outside, or make it with a network.",
        )


def _without_network(why: str, hint: str) -> Forbidden:
    return Forbidden(
        why=f"trust: the sandbox that asks has no network, and {why}",
        reason="attenuation_only",
        axis="trust",
        hint=hint,
    )


def living_grants(conn: Connection, among: Collection[str] | None = None) -> list[DelegatedKey]:
    """Returns the keys of all grants that have not ended, or of those among these accounts."""
    columns = delegated_keys.c
    query = select(delegated_keys).where(
        columns.state == KeyState.ACTIVE.value, columns.name.startswith(NAME + _SANDBOX, autoescape=True)
    )
    queries = [query]
    if among is not None:
        names = sorted(among)
        some = (names[start : start + _CHUNK] for start in range(0, len(names), _CHUNK))
        queries = [query.where(columns.account.in_(each)) for each in some]
    found = [key_of(row) for each in queries for row in conn.execute(each)]
    # Whoever delegates a key names it, and nobody chooses its account.
    grants = [key for key in found if key.name == NAME + sandbox_of(key.account)]
    return sorted(grants, key=lambda key: (key.generation, key.account))
