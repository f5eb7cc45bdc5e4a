"""A key, everything below it, and what each has spent: what `GET /v1/keys/tree` shows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from sandboxer.accounts.delegation import DelegatedKey, below, find_key
from sandboxer.accounts.sums import Figures, figures
from sandboxer.accounts.tables import delegated_keys
from sandboxer.kernel.errors import TooLarge
from sandboxer.money.amounts import Sats

MAX_NODES = 10_000
_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    account: str
    # None for an account that nobody delegated.
    key: DelegatedKey | None
    figures: Figures
    # Its own spending and that of all below it.
    subtree_spent: Sats
    children: tuple[Node, ...]


def tree(conn: Connection, account: str, *, now: datetime, living_only: bool = False) -> Node:
    """The tree below an account, itself at the top. Its ancestors are nobody's business but theirs."""
    found = below(conn, account, living_only=living_only)
    if len(found) > MAX_NODES:
        raise TooLarge(what="This tree of keys", limit=f"{MAX_NODES} keys")
    sums = figures(conn, [account, *(key.account for key in found)], now=now)
    made: dict[str, list[Node]] = {}
    # Parents come before children, so from the end every node's children are made before it.
    for key in reversed(found):
        node = _node(key.account, key, sums, made.pop(key.account, []))
        made.setdefault(key.parent, []).append(node)
    return _node(account, find_key(conn, account), sums, made.pop(account, []))


def accounts_above(conn: Connection, accounts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The ancestors of those of these accounts that were delegated, who hear of what they do."""
    found: dict[str, tuple[str, ...]] = {}
    names = sorted(accounts)
    for start in range(0, len(names), _CHUNK):
        query = select(delegated_keys.c.account, delegated_keys.c.path).where(
            delegated_keys.c.account.in_(names[start : start + _CHUNK])
        )
        found |= {account: tuple(path.split("/")[:-1]) for account, path in conn.execute(query)}
    return found


def _node(account: str, key: DelegatedKey | None, sums: dict[str, Figures], children: list[Node]) -> Node:
    ordered = tuple(sorted(children, key=lambda node: node.account))
    return Node(
        account=account,
        key=key,
        figures=sums[account],
        subtree_spent=sums[account].spent + sum(child.subtree_spent for child in ordered),
        children=ordered,
    )
