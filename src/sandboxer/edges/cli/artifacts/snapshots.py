"""`sandboxer snapshot`: keep a sandbox's disk, go back to it, fork from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import (
    SandboxId,
    VolumeOption,
    mounts,
    pairs,
)
from sandboxer.edges.cli.output import (
    ago,
    columns,
    disk_state,
    facts_table,
    plain,
    size,
    state_text,
    until,
)
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, each, group, noun, rows, verb
from sandboxer.sdk.sync.artifacts import Snapshots
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.snapshots import Snapshot, SnapshotLine

app = group("Keep disks, go back to them, fork them.")
groups = {"snapshot": app}

Id = Annotated[str, typer.Argument(help="Id of the snapshot (snp_…).", metavar="ID")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", help="NAME=VALUE; repeatable.")]
Name = Annotated[str | None, typer.Option(help="A name for people.")]
KeepFor = Annotated[str | None, typer.Option("--ttl", help="Delete it after this long: 4h, 7d.")]


def _show(snapshot: Snapshot) -> Answer:
    locked = "locked" if snapshot.locked_at else ""
    return Answer(snapshot, plain(snapshot.id), disk_state(snapshot.state), locked)


@verb(app, "create", wait="writing to the disk", timeout_s=180.0)
def create(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    name: Name = None,
    ttl: KeepFor = None,
    label: LabelOption = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep what runs too, to go on in copies (gVisor).")
    ] = False,
) -> Answer:
    """Keep a sandbox's disk as it is now; whatever runs goes on.

    Examples:

        sandboxer snapshot create dev --name before-upgrade

        sandboxer snapshot create dev --ttl 7d --label run=17 --memory
    """
    labels = pairs(label, "--label")
    made = platform.snapshots.take(sandbox_id, name=name, ttl=ttl, labels=labels, memory=memory or None)
    return Answer(
        made,
        plain(made.id),
        *filter(None, [made.name and plain(made.name)]),
        disk_state(made.state),
        f"[dim]{made.took_ms.get('take', 0):.1f} ms[/]",
    )


@verb(app, "list")
def list_snapshots(
    platform: Sandboxer,
    sandbox: Annotated[str | None, typer.Option(help="Only those taken of this sandbox.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state, deleted ones too.")] = None,
    label: LabelOption = None,
) -> Answer:
    """List snapshots, newest first.

    Examples:

        sandboxer snapshot list

        sandboxer snapshot list --sandbox dev --label run=17 --json
    """
    found = list(platform.snapshots.list(sandbox_id=sandbox, state=state, labels=pairs(label, "--label")))
    rows = [
        (
            one.id,
            one.name or "",
            disk_state(one.state),
            ("" if one.size_is_exact else "≤ ") + size(one.size_bytes),
            one.sandbox_id or one.volume_id or "",
            ago(one.created_at),
            until(one.expires_at),
            "locked" if one.locked_at else "",
        )
        for one in found
    ]
    table = columns(rows, "ID", "NAME", "STATE", "SIZE", "OF", "TAKEN", "GOES", "")
    return Answer(found, table, make="snapshot create SANDBOX")


@verb(app, "show", wait="looking at every file", timeout_s=180.0)
def show(platform: Sandboxer, id: Id) -> Answer:
    """Show one snapshot, with its exact size.

    Examples:

        sandboxer snapshot show ready
    """
    found = platform.snapshots.get(id)
    return Answer(found, facts_table(_facts(found)))


@verb(app, "restore", may_need_proof=True, wait="restoring", timeout_s=180.0)
def restore(platform: Sandboxer, id: Id) -> Answer:
    """Put its sandbox's disk back to what it was; what is on it now is lost.

    What runs ends, and the sandbox starts anew; a stopped one stays stopped.

    Examples:

        sandboxer snapshot restore ready
    """
    sandbox = platform.snapshots.restore(id)
    return Answer(sandbox, plain(sandbox.id), state_text(sandbox.state))


@verb(app, "clone", wait="making sandboxes", timeout_s=300.0)
def clone(
    platform: Sandboxer,
    id: Id,
    count: Annotated[int, typer.Option(help="How many, at most 100.", min=1, max=100)] = 1,
    name: Name = None,
    profile: Annotated[str | None, typer.Option(help="Default: as when it was taken.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long each lives: 30m, 4h.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; repeatable.")] = None,
    label: LabelOption = None,
    volume: VolumeOption = None,
) -> Answer:
    """Make new sandboxes that begin as it was, each a new machine.

    Examples:

        sandboxer snapshot clone ready

        sandboxer snapshot clone ready --count 20 --label run=17
    """
    made = platform.snapshots.clone(
        id,
        count=count,
        name=name,
        profile=profile,
        ttl=ttl,
        env=pairs(env, "--env"),
        labels=pairs(label, "--label"),
        volumes=mounts(volume) or None,
    )
    shown = each(
        Answer(one, *(plain(word) for word in (one.id, one.name) if word), state_text(one.state))
        for one in made.sandboxes
    )
    lacks = [f"without volume {one.volume_id} ({one.path}), of its source" for one in made.volumes_left_out]
    failed = [
        Text.assemble(("failed ", "bold red"), f"{one.number}: ", plain(one.problem.detail))
        for one in made.failed
    ]
    note = Group(*(Text(words, style="yellow") for words in lacks), *failed) if lacks or failed else None
    return Answer(made, *shown.parts, sep="\n", note=note, code=Exit.ERROR if failed else 0)


@verb(app, "tree")
def tree(platform: Sandboxer) -> Answer:
    """Show what came from what: snapshots, and the sandboxes and volumes that descend from them.

    Examples:

        sandboxer snapshot tree
    """
    lines = platform.snapshots.tree()
    return Answer(list(lines), *_grown(lines))


of_snapshots = partial(rows, app, noun("snapshots"), {"snapshot_id": Id})
of_snapshots(
    _show,
    Row(
        "lock",
        Snapshots.lock,
        "Guard a snapshot by a second proof: neither deleted by a request alone, nor when its time is over.",
        "snapshot lock ready",
    ),
    Row(
        "unlock",
        Snapshots.unlock,
        "Take that guard away, with a second proof.",
        "snapshot unlock ready --wallet ~/.wallet.key",
        may_need_proof=True,
    ),
)


@verb(app, "delete", may_need_proof=True, timeout_s=180.0)
def remove(
    platform: Sandboxer, ids: Annotated[list[str], typer.Argument(help="Ids of snapshots.", metavar="ID…")]
) -> Answer:
    """Delete snapshots; what was made from them stays.

    Examples:

        sandboxer snapshot delete ready
    """
    return each(_show(platform.snapshots.remove(id)) for id in ids)


def _facts(one: Snapshot) -> list[tuple[str, object]]:
    return [
        ("id", one.id),
        ("name", one.name),
        ("state", f"{one.state} ({one.reason})"),
        ("of", one.sandbox_id or one.volume_id),
        ("after", one.parent_id),
        ("content", one.content),
        ("size", size(one.size_bytes)),
        ("its own", None if one.exclusive_bytes is None else size(one.exclusive_bytes)),
        ("costs", f"{one.rate_msats_per_s} msats/s" if one.rate_msats_per_s else None),
        ("image", one.image),
        ("profile", one.profile),
        ("labels", " ".join(f"{key}={value}" for key, value in one.labels.items())),
        ("taken", ago(one.created_at)),
        ("goes", until(one.expires_at)),
        ("locked", ago(one.locked_at)),
    ]


def _grown(lines: Sequence[SnapshotLine]) -> list[Tree]:
    """Lines come with parents first: each hangs below the last one that lies less deep."""
    roots: list[Tree] = []
    path: list[Tree] = []
    for line in lines:
        words = Text.assemble(plain(line.id), " ", plain(line.name or ""), " ", disk_state(line.state))
        words.append(f" {size(line.size_bytes)}, {ago(line.created_at)}", style="dim")
        if line.locked_at:
            words.append(" locked", style="yellow")
        del path[line.depth :]
        made = path[-1].add(words) if path else Tree(words)
        if not path:
            roots.append(made)
        path.append(made)
        for sandbox_id in line.sandbox_ids:
            made.add(Text(sandbox_id, style="cyan"))
        for volume_id in line.volume_ids:
            made.add(Text(volume_id, style="magenta"))
    return roots


of_snapshots(
    as_it_is,
    Row(
        "update",
        Snapshots.change,
        "Change the name of a snapshot, or how long it is kept.",
        "snapshot update ready --name before-upgrade --ttl 30d",
        {
            "name": (Name, None),
            "ttl": (Annotated[str | None, typer.Option(help="How long it is kept from now on.")], None),
        },
    ),
)
