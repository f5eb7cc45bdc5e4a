"""What came from what: snapshots, and the sandboxes made from them, as a tree. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandboxer.artifacts.snapshots.lifecycle import USABLE
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.kernel.ids import is_volume_id


@dataclass(frozen=True, slots=True)
class Branch:
    snapshot: Snapshot
    # Sandboxes whose disk began as a copy of it, or was last taken to it or put back to it.
    sandbox_ids: tuple[str, ...] = ()
    # The same of volumes.
    volume_ids: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = field(default_factory=tuple)


def grow(snapshots: Iterable[Snapshot], disks: Iterable[tuple[str, str]]) -> Sequence[Branch]:
    """`disks` are (id of a sandbox or volume, id of the snapshot its disk descends from).

    What is gone is left out, unless something that is not gone descends from it.
    """
    known = {one.id: one for one in snapshots}
    children: dict[str | None, list[Snapshot]] = {}
    for one in sorted(known.values(), key=lambda each: (each.created_at, each.id)):
        children.setdefault(one.parent_id if one.parent_id in known else None, []).append(one)
    living: dict[str, list[str]] = {}
    for id_, snapshot_id in disks:
        living.setdefault(snapshot_id, []).append(id_)
    # From the leaves up, without recursion: a lineage may be a thousand deep.
    grown: dict[str, Branch | None] = {}
    for one in _leaves_first(children):
        below = tuple(b for child in children.get(one.id, ()) if (b := grown[child.id]) is not None)
        held = sorted(living.get(one.id, ()))
        volumes = tuple(id_ for id_ in held if is_volume_id(id_))
        others = tuple(id_ for id_ in held if not is_volume_id(id_))
        is_shown = bool(below or held) or one.state in USABLE
        grown[one.id] = Branch(one, others, volumes, below) if is_shown else None
    return [b for root in children.get(None, ()) if (b := grown[root.id]) is not None]


def _leaves_first(children: dict[str | None, list[Snapshot]]) -> list[Snapshot]:
    order: list[Snapshot] = []
    waiting = list(children.get(None, ()))
    while waiting:
        one = waiting.pop()
        order.append(one)
        waiting.extend(children.get(one.id, ()))
    return order[::-1]


def flattened(branches: Sequence[Branch]) -> list[tuple[int, Branch]]:
    """Line by line, parents before children, with how deep each lies."""
    lines: list[tuple[int, Branch]] = []
    waiting = [(0, branch) for branch in reversed(branches)]
    while waiting:
        depth, branch = waiting.pop()
        lines.append((depth, branch))
        waiting.extend((depth + 1, below) for below in reversed(branch.branches))
    return lines
