"""The tree of sandboxes below an account: those that it made, those that they made, what each has spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sandboxer.accounts import delegation
from sandboxer.accounts.delegation import Node
from sandboxer.agents.inception.grants import NAME, account_of, sandbox_of
from sandboxer.kernel.errors import TooLarge
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.charging import rate_now
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import OnParentEnd, Sandbox
from sandboxer.store.engine import Store

MOST = 10_000
# Of what ends together, so many are named; all are counted.
NAMED = 100


@value_class
class Entry:
    id: str
    name: str | None
    state: State
    # 0 for what the account itself made.
    depth: int
    # The sandbox that made it; None: the account itself.
    parent: str | None
    # Of what it made, all generations together; None: it may make nothing.
    spent_sats: int | None
    # What was given to it and is not spent; None: it may make nothing.
    left_sats: int | None
    # What it costs itself now.
    rate_msats_per_s: int


def grown(node: Node, sandboxes: Iterable[Sandbox]) -> list[Entry]:
    """Returns the entries of a tree, each before those that it made. Pure. Raises TooLarge."""
    of: dict[str, list[Sandbox]] = {}
    for sandbox in sandboxes:
        of.setdefault(sandbox.account, []).append(sandbox)
    found: list[Entry] = []
    for entry in _below(node, of, 0, None):
        found.append(entry)
        if len(found) > MOST:
            raise TooLarge(what="This tree of sandboxes", limit=f"{MOST} sandboxes")
    return found


def _below(
    node: Node, of: Mapping[str, Sequence[Sandbox]], depth: int, parent: str | None
) -> Iterator[Entry]:
    nodes = {child.account: child for child in node.children}
    for sandbox in sorted(of.get(node.account, ()), key=lambda one: (one.created_at, one.id)):
        grant = nodes.pop(account_of(sandbox.id), None)
        yield _entry(sandbox.id, sandbox, grant, depth, parent)
        if grant is not None:
            yield from _below(grant, of, depth + 1, sandbox.id)
    for account, orphan in nodes.items():
        # Its sandbox has ended, and what it made goes on.
        made_by = sandbox_of(account)
        if orphan.key is not None and orphan.key.name == NAME + made_by and _has_any(orphan, of):
            yield _entry(made_by, None, orphan, depth, parent)
            yield from _below(orphan, of, depth + 1, made_by)


def _has_any(node: Node, of: Mapping[str, Sequence[Sandbox]]) -> bool:
    return bool(of.get(node.account)) or any(_has_any(child, of) for child in node.children)


def _entry(id: str, sandbox: Sandbox | None, grant: Node | None, depth: int, parent: str | None) -> Entry:
    return Entry(
        id=id,
        name=None if sandbox is None else sandbox.name,
        state=State.DESTROYED if sandbox is None else sandbox.state,
        depth=depth,
        parent=parent,
        spent_sats=None if grant is None else grant.subtree_spent,
        left_sats=None if grant is None else grant.totals.balance,
        rate_msats_per_s=0 if sandbox is None else rate_now(sandbox),
    )


@value_class
class MadeInside:
    """What programs in a sandbox made, of all generations."""

    ends: bool
    sandboxes: tuple[Sandbox, ...]

    @property
    def count(self) -> int:
        return len(self.sandboxes)

    @property
    def sandbox_ids(self) -> list[str]:
        return [one.id for one in self.sandboxes[:NAMED]]


async def made_inside(sandboxes: SandboxDependencies, store: Store, sandbox: Sandbox) -> MadeInside | None:
    """Returns what lives of it, and whether it ends with the sandbox; None: nothing does."""
    if sandbox.inception is None:
        return None
    mine = account_of(sandbox.id)
    below = await store.read(lambda conn: delegation.below(conn, mine, living_only=True))
    accounts = [mine, *(key.account for key in below)]
    found = tuple(one for account in accounts for one in sandboxes.repository.living(account))
    ends = sandbox.inception.on_parent_end is OnParentEnd.END
    return MadeInside(ends=ends, sandboxes=found) if found else None


async def sandbox_tree(sandboxes: SandboxDependencies, store: Store, account: str) -> list[Entry]:
    """Returns the tree below an account. Raises TooLarge."""
    now = sandboxes.clock.now()
    node = await store.read(lambda conn: delegation.tree(conn, account, now=now, living_only=True))
    return grown(node, sandboxes.repository.living())
